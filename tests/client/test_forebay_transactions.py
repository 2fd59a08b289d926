"""Transactions and consume-transform-produce: together or not at all, also when things go wrong."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from forebay.client import (
    Admin,
    ClientError,
    Consumer,
    Message,
    Producer,
    ProducerFenced,
    Record,
    TransactionAborted,
    process,
)
from forebay.errors import ConfigError
from forebay.testing import Broker
from support.waiting import Patience


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


def transactional(servers: str, name: str) -> Producer:
    return Producer(servers, delivery="exactly-once", profile="latency", transactional_id=name)


def consumer_of(servers: str, topic: str, group: str = "") -> Consumer:
    return Consumer(
        servers,
        topic,
        group=group or f"{topic}-group",
        delivery="exactly-once",
        profile="latency",
        settings={"heartbeat.interval.ms": 100},
    )


def fill(servers: str, topic: str, count: int) -> None:
    with Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        for number in range(count):
            producer.send(topic, str(number))


def read(servers: str, topic: str, count: int) -> list[str]:
    with consumer_of(servers, topic, f"{topic}-check") as consumer:
        return [(next(consumer).value or b"").decode() for _ in range(count)]


def test_only_what_was_committed_is_read(servers: str, forebay_topic: str) -> None:
    with transactional(servers, forebay_topic) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(forebay_topic, "aborted")
            producer.flush()
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(forebay_topic, "one")
            producer.send(forebay_topic, "two")
    assert read(servers, forebay_topic, 2) == ["one", "two"]


def test_sending_outside_a_transaction_is_refused(servers: str, forebay_topic: str) -> None:
    with transactional(servers, forebay_topic) as producer:
        with pytest.raises(ClientError, match=r"producer\.transaction"):
            producer.send(forebay_topic, "x")
        with producer.transaction():
            producer.send(forebay_topic, "one")
            with pytest.raises(ClientError, match="open already"), producer.transaction():
                pass
            producer.send(forebay_topic, "two")
    assert read(servers, forebay_topic, 2) == ["one", "two"]


def test_other_modes_have_no_transactions(servers: str) -> None:
    with (
        Producer(servers) as producer,
        pytest.raises(ClientError, match="exactly-once"),
        producer.transaction(),
    ):
        pass


def test_without_a_transactional_id_one_is_made_up(servers: str, forebay_topic: str) -> None:
    with Producer(servers, delivery="exactly-once", profile="latency") as producer, producer.transaction():
        producer.send(forebay_topic, "x")
    assert read(servers, forebay_topic, 1) == ["x"]


def test_a_newer_producer_fences_the_older_one(servers: str, forebay_topic: str) -> None:
    with transactional(servers, forebay_topic) as old, transactional(servers, forebay_topic) as new:
        with pytest.raises(ProducerFenced) as fenced, old.transaction():
            old.send(forebay_topic, "old")
            old.raw.flush()
            with new.transaction():
                new.send(forebay_topic, "new")
        assert fenced.value.fatal
    assert read(servers, forebay_topic, 1) == ["new"]


@pytest.mark.forebay_topic(config={"max.message.bytes": "1000"})
def test_a_message_that_is_refused_aborts_its_transaction(servers: str, forebay_topic: str) -> None:
    with transactional(servers, forebay_topic) as producer:
        with pytest.raises(TransactionAborted), producer.transaction():
            producer.send(forebay_topic, "small")
            producer.flush()
            producer.send(forebay_topic, "x" * 5000)
        # librdkafka may need one more round to get its sequence numbers right again.
        patience = Patience("a transaction is committed")
        while True:
            patience.check()
            with contextlib.suppress(TransactionAborted), producer.transaction():
                producer.send(forebay_topic, "after")
            if producer.transactions.committed:
                break
    assert read(servers, forebay_topic, 1) == ["after"]


def test_offsets_and_messages_are_committed_together(servers: str, forebay_topic: str) -> None:
    sink = f"{forebay_topic}-sink"
    fill(servers, forebay_topic, 6)
    with transactional(servers, sink) as producer, consumer_of(servers, forebay_topic) as consumer:
        with pytest.raises(ZeroDivisionError), producer.transaction(consumer):
            producer.send(sink, next(consumer).value)
            raise ZeroDivisionError
        for _ in range(2):
            with producer.transaction(consumer):
                for _ in range(3):
                    producer.send(sink, next(consumer).value)
    assert read(servers, sink, 6) == ["0", "1", "2", "3", "4", "5"]
    assert Admin(servers).committed(f"{forebay_topic}-group") == {(forebay_topic, 0): 6}


def test_a_partition_taken_away_in_a_transaction_aborts_it(servers: str, forebay_topic: str) -> None:
    """Or its messages would be committed without their offsets, and processed again by the new owner."""
    Admin(servers).add_partitions(forebay_topic, 2)
    sink = f"{forebay_topic}-sink"
    with (
        Producer(servers, delivery="at-most-once", acks=1, profile="latency") as source,
        transactional(servers, sink) as producer,
        consumer_of(servers, forebay_topic) as consumer,
    ):
        for partition in (0, 1):
            source.send(forebay_topic, str(partition), partition=partition)
        source.flush()
        with pytest.raises(TransactionAborted, match="taken away"), producer.transaction(consumer):
            for message in (next(consumer), next(consumer)):
                producer.send(sink, message.value)
            with consumer_of(servers, forebay_topic) as other:
                patience = Patience("the other member gets a partition")
                while not other.raw.assignment():
                    patience.check()
                    other.raw.poll(0.05)
                    consumer.poll(0.05)
        found: set[bytes | None] = set()
        patience = Patience("both messages are read again")
        while len(found) < 2:
            patience.check(found)
            with producer.transaction(consumer):
                for message in consumer.take(10, 0.5):
                    producer.send(sink, message.value)
                    found.add(message.value)
    assert sorted(read(servers, sink, 2)) == ["0", "1"]


def test_process_goes_on_after_an_error_where_it_was(servers: str, forebay_topic: str) -> None:
    sink = f"{forebay_topic}-sink"
    fill(servers, forebay_topic, 50)
    calls = 0

    def transform(message: Message) -> list[Record]:
        nonlocal calls
        calls += 1
        if calls == 23:
            raise ZeroDivisionError
        return [Record(topic=sink, value=message.value), Record(topic=sink, value=message.value)]

    def stop() -> bool:
        return calls >= 50

    with transactional(servers, sink) as producer, consumer_of(servers, forebay_topic) as consumer:
        with pytest.raises(ZeroDivisionError):
            process(consumer, producer, transform, batch_max=10, stop=stop)
        process(consumer, producer, transform, batch_max=10, stop=stop)
    expected = [str(number) for number in range(50) for _ in range(2)]
    assert read(servers, sink, 100) == expected


def test_process_tries_again_when_the_transaction_is_aborted(servers: str, forebay_topic: str) -> None:
    sink = f"{forebay_topic}-sink"
    Admin(servers).create_topic(sink, partitions=1, config={"max.message.bytes": "1000"})
    fill(servers, forebay_topic, 3)
    sizes = itertools.chain([5000], itertools.repeat(10))

    def transform(message: Message) -> Record:
        # The first attempt makes a message that the broker refuses.
        return Record(topic=sink, key=message.value, value="x" * next(sizes))

    with transactional(servers, sink) as producer, consumer_of(servers, forebay_topic) as consumer:
        done = process(consumer, producer, transform, stop=lambda: _committed(servers, forebay_topic) == 3)
    assert done == 3
    with consumer_of(servers, sink) as consumer:
        assert [next(consumer).key for _ in range(3)] == [b"0", b"1", b"2"]


def _committed(servers: str, topic: str) -> int | None:
    return Admin(servers).committed(f"{topic}-group").get((topic, 0))


def test_process_wants_both_sides_to_promise_the_same(servers: str, forebay_topic: str) -> None:
    with (
        Producer(servers) as producer,
        consumer_of(servers, forebay_topic) as consumer,
        pytest.raises(ConfigError, match="same delivery"),
    ):
        process(consumer, producer, lambda _: None)


def test_process_ends_when_idle(servers: str, forebay_topic: str) -> None:
    with transactional(servers, forebay_topic) as producer, consumer_of(servers, forebay_topic) as consumer:
        assert process(consumer, producer, lambda _: None, idle_s=0.2) == 0
