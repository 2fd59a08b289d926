"""Messages that wait for their time, with each client: it sends them as any other, and passes over notes."""

from __future__ import annotations

import time

import confluent_kafka
import pytest

from support.brokers.broker_process import BrokerProcess
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Client,
    Message,
    confluent_consumer,
    create_topic,
    need,
)

ENABLED = {"forebay_delay_enable": "true"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def delayed(value: bytes, due_ms: int) -> Message:
    return Message(value, b"key", headers=(("forebay-deliver-at", str(due_ms).encode()), ("own", b"1")))


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_each_client_sends_and_gets_what_waited(
    broker: BrokerProcess, topic: str, client: Client, codec: str
) -> None:
    need(client, codec)
    create_topic(broker.bootstrap, topic, **ENABLED)
    due_ms = now_ms() + 2_000
    sent = [Message(b"a", b"key"), delayed(b"c", due_ms + 1), delayed(b"b", due_ms)]
    client.produce(broker.bootstrap, topic, sent, codec=codec)
    received = client.consume(broker.bootstrap, topic, 3)
    assert now_ms() > due_ms
    assert [each.message.value for each in received] == [b"a", b"b", b"c"]
    headers = [dict(each.message.headers) for each in received[1:]]
    assert [header["own"] for header in headers] == [b"1", b"1"]
    assert all("forebay-deliver-at" not in header for header in headers)
    assert received[1].message.timestamp in (due_ms, None)
    client.produce(broker.bootstrap, topic, [delayed(b"d", now_ms() + 500)], codec=codec)
    last = client.consume(broker.bootstrap, topic, 1, offset=received[-1].offset + 1)
    assert [each.message.value for each in last] == [b"d"], "the consumer began at a note"


def test_a_transaction_schedules_when_it_is_committed(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, **ENABLED)
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(DEADLINE_SECONDS)

    def send(value: bytes, *headers: tuple[str, bytes]) -> None:
        producer.produce(topic, value, b"key", headers=list(headers))
        assert producer.flush(DEADLINE_SECONDS) == 0

    soon = ("forebay-deliver-after", b"200ms")
    producer.begin_transaction()
    send(b"aborted", soon)
    send(b"aborted too")
    producer.abort_transaction(DEADLINE_SECONDS)
    producer.begin_transaction()
    send(b"later", soon)
    send(b"replaced", ("forebay-deliver-after", b"1h"), ("forebay-schedule-key", b"k"))
    send(b"now")
    time.sleep(0.5)  # its time is over, and it is still not delivered
    consumer = confluent_consumer(broker.bootstrap, isolation_level="read_uncommitted")
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        seen = _values(consumer, 2)
        assert seen == [b"aborted too", b"now"]
        producer.commit_transaction(DEADLINE_SECONDS)
        producer.begin_transaction()
        send(b"instead", ("forebay-deliver-after", b"300ms"), ("forebay-schedule-key", b"k"))
        producer.commit_transaction(DEADLINE_SECONDS)
        assert _values(consumer, 2) == [b"later", b"instead"]
        send_plain = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        send_plain.produce(topic, b"end", b"key")
        assert send_plain.flush(DEADLINE_SECONDS) == 0
        assert _values(consumer, 1) == [b"end"]
    finally:
        consumer.close()
    committed = confluent_consumer(broker.bootstrap, isolation_level="read_committed")
    try:
        committed.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert _values(committed, 4) == [b"now", b"later", b"instead", b"end"]
    finally:
        committed.close()


def _values(consumer: confluent_kafka.Consumer, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 0.5):
            assert message.error() is None, message.error()
            found.append(message.value())
    return found
