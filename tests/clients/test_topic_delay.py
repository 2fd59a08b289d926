"""A topic whose messages wait (`forebay.delay.ms`), with real clients: never early, committed, compacted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from forebay.broker.node import Node
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.settable_clock import SettableClock
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Client,
    Message,
    confluent_consumer,
    create_topic,
    each_client,
    need,
)

DELAY_MS = 3_000
"""Longer than a client takes to read a message that is there."""
HOUR_MS = 3_600_000
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0",
}


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def own_broker(tmp_path: Path, clock: SettableClock) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", SETTINGS, clock=clock) as running:
        yield running


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@each_client
def test_no_client_gets_a_message_before_it_is_due(broker: BrokerProcess, client: Client, topic: str) -> None:
    need(client)
    create_topic(broker.bootstrap, topic, forebay_delay_ms=str(DELAY_MS))
    client.produce(broker.bootstrap, topic, [Message(b"a"), Message(b"b"), Message(b"c")])
    received = client.consume(broker.bootstrap, topic, 3)
    now_ms = time.time_ns() // 1_000_000
    assert [(each.offset, each.message.value) for each in received] == [(0, b"a"), (1, b"b"), (2, b"c")]
    due_ms = [(each.message.timestamp or now_ms) + DELAY_MS for each in received]
    assert max(due_ms) <= now_ms


class Reader:
    """A consumer of partition 0 from its start on."""

    def __init__(self, bootstrap: str, topic: str, isolation: str) -> None:
        self._at = TopicPartition(topic, 0, 0)
        self._consumer = confluent_consumer(bootstrap, isolation_level=isolation)
        self._consumer.assign([self._at])
        self.values: list[bytes | None] = []

    def poll(self) -> list[bytes | None]:
        for message in self._consumer.consume(10, 0.1):
            assert message.error() is None, message.error()
            self.values.append(message.value())
        return self.values

    def end(self) -> int:
        found = self._consumer.get_watermark_offsets(self._at, DEADLINE_SECONDS)
        assert found is not None
        end: int = found[1]
        return end

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def committed(own_broker: LocalBroker) -> Iterator[Reader]:
    create_topic(own_broker.bootstrap, "later", forebay_delay_ms=str(HOUR_MS))
    reader = Reader(own_broker.bootstrap, "later", "read_committed")
    yield reader
    reader.close()


@pytest.fixture
def uncommitted(own_broker: LocalBroker, committed: Reader) -> Iterator[Reader]:
    reader = Reader(own_broker.bootstrap, "later", "read_uncommitted")
    yield reader
    reader.close()


@pytest.fixture
def producer(own_broker: LocalBroker) -> Iterator[confluent_kafka.Producer]:
    settings = {"bootstrap.servers": own_broker.bootstrap, "transactional.id": "tx", "log_level": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(DEADLINE_SECONDS)
    yield producer
    producer.purge()


def test_transactions_are_seen_when_they_are_due_and_only_if_committed(
    clock: SettableClock, producer: confluent_kafka.Producer, committed: Reader, uncommitted: Reader
) -> None:
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce("later", value, partition=0)
        producer.flush(DEADLINE_SECONDS)
        (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_SECONDS)
    assert (committed.end(), committed.poll()) == (0, [])
    assert (uncommitted.end(), uncommitted.poll()) == (0, [])
    clock.step_ms = HOUR_MS + 60_000
    assert eventually(lambda: committed.poll() == [b"a", b"c"])
    assert eventually(lambda: uncommitted.poll() == [b"a", b"b", b"c"])


def test_what_is_due_in_an_open_transaction_is_seen_when_it_is_committed(
    clock: SettableClock, producer: confluent_kafka.Producer, committed: Reader, uncommitted: Reader
) -> None:
    producer.begin_transaction()
    producer.produce("later", b"open", partition=0)
    producer.flush(DEADLINE_SECONDS)
    clock.step_ms = HOUR_MS + 60_000
    assert eventually(lambda: uncommitted.poll() == [b"open"])
    assert (committed.end(), committed.poll()) == (0, [])
    producer.commit_transaction(DEADLINE_SECONDS)
    assert eventually(lambda: committed.poll() == [b"open"])


def test_compaction_does_not_wait_until_messages_are_due(
    clock: SettableClock, own_broker: LocalBroker
) -> None:
    topic, (client, *_) = "table", CLIENTS
    create_topic(own_broker.bootstrap, topic, forebay_delay_ms=str(HOUR_MS), cleanup_policy="compact")
    client.produce(own_broker.bootstrap, topic, [Message(b"never seen", b"k"), Message(b"kept", b"other")])
    client.produce(own_broker.bootstrap, topic, [Message(b"newer", b"k")])
    reader = Reader(own_broker.bootstrap, topic, "read_committed")
    try:
        compact(own_broker, topic)
        assert (reader.end(), reader.poll()) == (0, [])
        clock.step_ms = HOUR_MS + 60_000
        assert eventually(lambda: reader.poll() == [b"kept", b"newer"])
    finally:
        reader.close()


def compact(broker: LocalBroker, topic: str) -> None:
    def roll(node: Node) -> int:
        log = node.partitions.get(topic, 0).log
        log.roll()
        return log.end_offset

    end = broker.on_loop(roll)
    assert eventually(lambda: broker.on_loop(lambda node: node.data.first_dirty_offset(topic, 0)) >= end)


def test_the_end_of_a_transaction_holds_up_nothing(
    producer: confluent_kafka.Producer, committed: Reader
) -> None:
    """The marker is newer than the message, and is none."""
    old_ms = time.time_ns() // 1_000_000 - 2 * HOUR_MS
    for value in (b"a", b"b"):
        producer.begin_transaction()
        producer.produce("later", value, partition=0, timestamp=old_ms)
        producer.commit_transaction(DEADLINE_SECONDS)
    assert eventually(lambda: committed.poll() == [b"a", b"b"])
