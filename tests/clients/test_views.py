"""Views with real clients: read alone, in groups of both protocols, by time, and committed messages only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Client,
    Message,
    confluent_admin,
    confluent_consumer,
    create_topic,
    each_client,
    kafka_python,
    need,
)

EU = "headers['region'] = 'eu' AND value.amount > 100"
TIME = 1_700_000_000_000


def order(number: int, region: str = "eu", amount: int = 200, partition: int = 0) -> Message:
    value = json.dumps({"id": number, "amount": amount}).encode()
    return Message(value, b"%d" % number, (("region", region.encode()),), TIME + 1000 * number, partition)


def number_of(value: bytes | None) -> int:
    assert value is not None
    found: int = json.loads(value)["id"]
    return found


def create_view(bootstrap: str, name: str, source: str, where: str | None, select: str | None = None) -> None:
    query = {"source": source, "where": where, "select": select}
    config = {f"forebay.view.{key}": text for key, text in query.items() if text is not None}
    new = NewTopic(name, num_partitions=-1, replication_factor=-1, config=config)
    admin = confluent_admin(bootstrap)
    admin.create_topics([new])[name].result(DEADLINE_SECONDS)


@pytest.fixture
def orders(broker: BrokerProcess, topic: str) -> tuple[str, list[int]]:
    """A view of orders on two partitions, and the numbers of those that it shows."""
    create_topic(broker.bootstrap, topic, 2)
    sent = [
        order(number, "eu" if number % 3 else "us", 200 if number % 5 else 50, number % 2)
        for number in range(300)
    ]
    CLIENTS[0].produce(broker.bootstrap, topic, sent, codec="lz4")
    create_view(broker.bootstrap, f"{topic}-view", topic, EU)
    return f"{topic}-view", [number for number in range(300) if number % 3 and number % 5]


@each_client
def test_every_client_reads_a_view(
    broker: BrokerProcess, orders: tuple[str, list[int]], client: Client
) -> None:
    need(client)
    view, expected = orders
    for partition in range(2):
        wanted = [number for number in expected if number % 2 == partition]
        received = client.consume(broker.bootstrap, view, len(wanted), partition=partition)
        assert [number_of(found.message.value) for found in received] == wanted
        assert [found.offset for found in received] == [number // 2 for number in wanted]
        assert all(found.message.headers == (("region", b"eu"),) for found in received)


@each_client
def test_every_client_passes_a_region_without_a_match(
    broker: BrokerProcess, topic: str, client: Client
) -> None:
    need(client)
    create_topic(broker.bootstrap, topic, 1)
    CLIENTS[0].produce(broker.bootstrap, topic, [order(number, "us") for number in range(3_000)])
    CLIENTS[0].produce(broker.bootstrap, topic, [order(3_000)])
    CLIENTS[0].produce(broker.bootstrap, topic, [order(number, "us") for number in range(3_001, 3_010)])
    CLIENTS[0].produce(broker.bootstrap, topic, [order(3_010)])
    create_view(broker.bootstrap, f"{topic}-view", topic, EU)
    received = client.consume(broker.bootstrap, f"{topic}-view", 2)
    assert [(found.offset, number_of(found.message.value)) for found in received] == [
        (3_000, 3_000),
        (3_010, 3_010),
    ]


@each_client
def test_no_client_minds_many_answers_without_a_match(
    start_broker: StartBroker, topic: str, client: Client
) -> None:
    """librdkafka complains of too large messages after ten answers with nothing in them."""
    need(client)
    broker = start_broker("forebay.view.fetch.source.max.bytes=1")
    create_topic(broker.bootstrap, topic, 1, segment_bytes="1000000")
    for _ in range(11):
        CLIENTS[0].produce(broker.bootstrap, topic, [order(0, "us", amount=10**300) for _ in range(1_000)])
    CLIENTS[0].produce(broker.bootstrap, topic, [order(1)])
    create_view(broker.bootstrap, f"{topic}-view", topic, EU)
    for _ in range(2):
        (found,) = client.consume(broker.bootstrap, f"{topic}-view", 1)
        assert (found.offset, number_of(found.message.value)) == (11_000, 1)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_shares_a_view_and_goes_on_where_it_was(
    broker: BrokerProcess, orders: tuple[str, list[int]], topic: str, protocol: str
) -> None:
    view, expected = orders
    seen: list[int] = []
    for rest in (len(expected) // 2, len(expected)):
        consumer = confluent_consumer(
            broker.bootstrap, group_id=topic, group_protocol=protocol, auto_offset_reset="earliest"
        )
        consumer.subscribe([view])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(seen) < rest and time.monotonic() < deadline:
            for message in consumer.consume(rest - len(seen), 0.5):
                assert message.error() is None, message.error()
                seen.append(number_of(message.value()))
        consumer.commit(asynchronous=False)
        consumer.close()
    assert sorted(seen) == expected


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_finds_views(broker: BrokerProcess, topic: str, protocol: str) -> None:
    create_topic(broker.bootstrap, topic, 1)
    CLIENTS[0].produce(broker.bootstrap, topic, [order(1), order(2, "us"), order(3)])
    create_view(broker.bootstrap, f"{topic}-view", topic, EU)
    consumer = confluent_consumer(
        broker.bootstrap, group_id=topic, group_protocol=protocol, auto_offset_reset="earliest"
    )
    consumer.subscribe([f"^{topic}-v.*"])
    assert [number_of(value) for value in _values(consumer, 2)] == [1, 3]
    consumer.close()


def _values(consumer: confluent_kafka.Consumer, count: int) -> Iterator[bytes | None]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            yield message.value()
            count -= 1


def test_a_view_is_searched_by_time(broker: BrokerProcess, orders: tuple[str, list[int]]) -> None:
    view, expected = orders
    consumer = confluent_consumer(broker.bootstrap)
    place = TopicPartition(view, 0, TIME + 1000 * 100)
    (found,) = consumer.offsets_for_times([place], DEADLINE_SECONDS)
    assert found.offset == 52, "the first order from that time on that the view shows"
    consumer.assign([found])
    later = [number for number in expected if number >= 100 and number % 2 == 0]
    assert [number_of(value) for value in _values(consumer, len(later))] == later
    consumer.close()


def test_committed_messages_of_a_view_are_read_by_every_client(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 1)
    create_view(broker.bootstrap, f"{topic}-view", topic, EU)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_SECONDS)
    number = 0
    expected = []
    for commits in (True, False, True, False, True):
        producer.begin_transaction()
        for region in ("us", "eu", "us", "eu"):
            sent = order(number, region)
            producer.produce(topic, sent.value, sent.key, headers=list(sent.headers))
            expected += [number] if commits and region == "eu" else []
            number += 1
        producer.flush(DEADLINE_SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_SECONDS)
    consumer = confluent_consumer(broker.bootstrap, isolation_level="read_committed")
    consumer.assign([TopicPartition(f"{topic}-view", 0, 0)])
    assert [number_of(value) for value in _values(consumer, len(expected))] == expected
    consumer.close()
    other: Any = kafka_python.KafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
    )
    place = kafka_python.TopicPartition(f"{topic}-view", 0)
    other.assign([place])
    other.seek_to_beginning(place)
    found: list[int] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found) < len(expected) and time.monotonic() < deadline:
        found += [number_of(each.value) for each in other.poll(500).get(place, [])]
    other.close()
    assert found == expected


async def test_committed_messages_of_a_view_are_read_by_aiokafka(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 1)
    create_view(broker.bootstrap, f"{topic}-view", topic, EU)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=topic)
    await producer.start()
    for number, commits in enumerate((False, True, False, True)):
        await producer.begin_transaction()
        for region in ("us", "eu"):
            sent = order(number, region)
            await producer.send_and_wait(topic, sent.value, sent.key, headers=list(sent.headers))
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(f"{topic}-view", 0)])
    assert [number_of((await consumer.getone()).value) for _ in range(2)] == [1, 3]
    await consumer.stop()


def test_a_producer_is_told_at_once_that_a_view_cannot_be_written(
    broker: BrokerProcess, orders: tuple[str, list[int]]
) -> None:
    view, _ = orders
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(view, b"{}", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert [error.code() for error in errors] == [KafkaError.POLICY_VIOLATION]


def test_a_transaction_that_writes_to_a_view_fails(
    broker: BrokerProcess, orders: tuple[str, list[int]]
) -> None:
    view, _ = orders
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": view, "log_level": 0}
    )
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(view, b"{}")
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_SECONDS)


def test_an_administrator_sees_the_query_and_the_error_of_another(
    broker: BrokerProcess, orders: tuple[str, list[int]], topic: str
) -> None:
    view, _ = orders
    admin = confluent_admin(broker.bootstrap)
    resource = ConfigResource(ResourceType.TOPIC, view)
    entries = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
    assert entries["forebay.view.where"].value == EU
    with pytest.raises(KafkaException) as refused:
        create_view(broker.bootstrap, f"{topic}-other", topic, "value.amount >> 3 'x'")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)


def test_a_projection_rewrites_the_value(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 1)
    create_view(broker.bootstrap, f"{topic}-view", topic, EU, "value.id, value.amount * 2 AS double")
    CLIENTS[0].produce(broker.bootstrap, topic, [order(1), order(2, "us"), order(3)])
    received = CLIENTS[0].consume(broker.bootstrap, f"{topic}-view", 2)
    assert [json.loads(found.message.value or b"") for found in received] == [
        {"id": 1, "double": 400},
        {"id": 3, "double": 400},
    ]
    assert [found.message.key for found in received] == [b"1", b"3"]
