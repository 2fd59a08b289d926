"""Where consumers stand: seeking by offset and by time, watermarks, the ends of a log, waiting for more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import OffsetSpec

from support.brokers.broker_process import BrokerProcess
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
    kcat,
    need,
)

FIRST_MS = 1_600_000_000_000
COUNT = 1_000


@pytest.fixture(scope="module")
def timeline(broker: BrokerProcess) -> str:
    """A topic with a message each second: number n at offset n, in segments and batches of a few."""
    name = "timeline"
    create_topic(broker.bootstrap, name, retention_ms="-1", segment_bytes="4096", index_interval_bytes="256")
    for start in range(0, COUNT, 50):
        numbers = range(start, start + 50)
        messages = [Message(b"%d" % n, timestamp=FIRST_MS + n * 1000) for n in numbers]
        CLIENTS[0].produce(broker.bootstrap, name, messages, codec="gzip" if start % 100 else "none")
    return name


@pytest.fixture
def consumer(broker: BrokerProcess) -> Iterator[Consumer]:
    consumer = confluent_consumer(broker.bootstrap, auto_offset_reset="error")
    yield consumer
    consumer.close()


# -- by offset ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 49, 50, 77, 500, COUNT - 1])
@each_client
def test_reading_begins_at_the_offset(
    broker: BrokerProcess, timeline: str, client: Client, offset: int
) -> None:
    need(client)
    count = min(20, COUNT - offset)
    received = client.consume(broker.bootstrap, timeline, count, offset=offset)
    assert [(found.offset, found.message.value) for found in received] == [
        (n, b"%d" % n) for n in range(offset, offset + count)
    ]


def test_a_consumer_may_go_back_and_forth(consumer: Consumer, timeline: str) -> None:
    consumer.assign([TopicPartition(timeline, 0, 0)])
    for offset in (0, 900, 3, 500, 3):
        consumer.seek(TopicPartition(timeline, 0, offset))
        message = consumer.poll(DEADLINE_SECONDS)
        assert message is not None
        assert (message.offset(), message.value()) == (offset, b"%d" % offset)
        assert [found.offset for found in consumer.position([TopicPartition(timeline, 0)])] == [offset + 1]


@pytest.mark.parametrize(("where", "first"), [("beginning", 0), ("end", COUNT), ("-7", COUNT - 7)])
def test_kcat_names_places(broker: BrokerProcess, timeline: str, where: str, first: int) -> None:
    need(CLIENTS[3])
    out = kcat(broker.bootstrap, "-C", "-q", "-e", "-t", timeline, "-p", "0", "-o", where, "-f", "%o\\n")
    assert out.split() == [b"%d" % offset for offset in range(first, COUNT)]


# -- by time -----------------------------------------------------------------------------------------------

TIMES = [
    (0, 0),
    (FIRST_MS - 1, 0),
    (FIRST_MS, 0),
    (FIRST_MS + 1, 1),
    (FIRST_MS + 49_001, 50),
    (FIRST_MS + 500_000, 500),
    (FIRST_MS + 500_999, 501),
    (FIRST_MS + 999_000, 999),
]


@pytest.mark.parametrize(("timestamp", "offset"), TIMES)
def test_confluent_finds_the_offset_of_a_time(
    consumer: Consumer, timeline: str, timestamp: int, offset: int
) -> None:
    (found,) = consumer.offsets_for_times([TopicPartition(timeline, 0, timestamp)], DEADLINE_SECONDS)
    assert (found.error, found.offset) == (None, offset)


def test_confluent_finds_the_end_for_a_time_to_come(consumer: Consumer, timeline: str) -> None:
    wanted = TopicPartition(timeline, 0, FIRST_MS + 10_000_000)
    (found,) = consumer.offsets_for_times([wanted], DEADLINE_SECONDS)
    assert (found.error, found.offset) == (None, -1)


def test_kafka_python_finds_offsets_of_times(broker: BrokerProcess, timeline: str) -> None:
    place = kafka_python.TopicPartition(timeline, 0)
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=broker.bootstrap)
    try:
        for timestamp, offset in TIMES:
            found = consumer.offsets_for_times({place: timestamp})[place]
            assert (found.offset, found.timestamp) == (offset, FIRST_MS + offset * 1000)
        assert consumer.offsets_for_times({place: FIRST_MS + 10_000_000}) == {place: None}
        assert consumer.beginning_offsets([place]) == {place: 0}
        assert consumer.end_offsets([place]) == {place: COUNT}
    finally:
        consumer.close()


async def test_aiokafka_finds_offsets_of_times(broker: BrokerProcess, timeline: str) -> None:
    place = aiokafka.TopicPartition(timeline, 0)
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as consumer:
        for timestamp, offset in TIMES:
            found = (await consumer.offsets_for_times({place: timestamp}))[place]
            assert (found.offset, found.timestamp) == (offset, FIRST_MS + offset * 1000)
        assert await consumer.offsets_for_times({place: FIRST_MS + 10_000_000}) == {place: None}
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place]) == {place: COUNT}


@pytest.mark.parametrize(("timestamp", "offset"), TIMES[4:])
def test_kcat_begins_at_a_time(broker: BrokerProcess, timeline: str, timestamp: int, offset: int) -> None:
    need(CLIENTS[3])
    place = ["-t", timeline, "-p", "0", "-o", f"s@{timestamp}"]
    assert kcat(broker.bootstrap, "-C", "-q", "-c", "1", *place, "-f", "%o") == b"%d" % offset


# -- the ends of the log -----------------------------------------------------------------------------------


def test_watermarks(consumer: Consumer, timeline: str) -> None:
    place = TopicPartition(timeline, 0)
    assert consumer.get_watermark_offsets(place, DEADLINE_SECONDS) == (0, COUNT)


@pytest.mark.parametrize(
    ("spec", "offset", "timestamp"),
    [
        (OffsetSpec.earliest(), 0, -1),
        (OffsetSpec.latest(), COUNT, -1),
        (OffsetSpec.max_timestamp(), COUNT - 1, FIRST_MS + (COUNT - 1) * 1000),
        (OffsetSpec.for_timestamp(FIRST_MS + 1), 1, FIRST_MS + 1000),
    ],
    ids=["earliest", "latest", "max-timestamp", "timestamp"],
)
def test_offsets_are_listed_by_meaning(
    broker: BrokerProcess, timeline: str, spec: OffsetSpec, offset: int, timestamp: int
) -> None:
    admin = confluent_admin(broker.bootstrap)
    place = TopicPartition(timeline, 0)
    found = admin.list_offsets({place: spec})[place].result(DEADLINE_SECONDS)
    assert (found.offset, found.timestamp) == (offset, timestamp)


@pytest.mark.parametrize(("policy", "first"), [("earliest", 0), ("latest", COUNT)])
def test_an_impossible_offset_is_reset(broker: BrokerProcess, topic: str, policy: str, first: int) -> None:
    create_topic(broker.bootstrap, topic)
    CLIENTS[0].produce(broker.bootstrap, topic, [Message(b"%d" % n) for n in range(COUNT)])
    consumer = confluent_consumer(broker.bootstrap, auto_offset_reset=policy, enable_partition_eof=True)
    try:
        consumer.assign([TopicPartition(topic, 0, 1_000_000)])
        message = consumer.poll(DEADLINE_SECONDS)
        assert message is not None
        error = message.error()
        if policy == "latest":
            assert error is not None
            assert error.code() == KafkaError._PARTITION_EOF
        assert message.offset() == first
    finally:
        consumer.close()


def test_an_impossible_offset_is_an_error_where_nothing_may_be_reset(
    consumer: Consumer, timeline: str
) -> None:
    consumer.assign([TopicPartition(timeline, 0, 1_000_000)])
    message = consumer.poll(DEADLINE_SECONDS)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in error.str().lower()


def test_kafka_python_and_aiokafka_reset_too(broker: BrokerProcess, timeline: str) -> None:
    place = kafka_python.TopicPartition(timeline, 0)
    consumer = kafka_python.KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    try:
        consumer.assign([place])
        consumer.seek(place, 1_000_000)
        assert next(consumer).offset == 0
    finally:
        consumer.close()

    async def with_aiokafka() -> int:
        settings = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest"}
        async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
            consumer.assign([aiokafka.TopicPartition(timeline, 0)])
            consumer.seek(aiokafka.TopicPartition(timeline, 0), 1_000_000)
            return int((await asyncio.wait_for(consumer.getone(), DEADLINE_SECONDS)).offset)

    assert asyncio.run(with_aiokafka()) == 0


def test_deleted_records_are_gone_for_readers(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    CLIENTS[0].produce(broker.bootstrap, topic, [Message(b"%d" % n) for n in range(100)])
    admin = confluent_admin(broker.bootstrap)
    place = TopicPartition(topic, 0, 40)
    deleted = admin.delete_records([place])[place].result(DEADLINE_SECONDS)
    assert deleted.low_watermark == 40
    consumer = confluent_consumer(broker.bootstrap, auto_offset_reset="earliest")
    try:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_SECONDS) == (40, 100)
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(60, DEADLINE_SECONDS)
        assert [m.offset() for m in messages] == list(range(40, 100))
    finally:
        consumer.close()
    # The batch that holds offset 40 begins earlier; the client leaves out what it did not ask for.
    received = CLIENTS[2].consume(broker.bootstrap, topic, 60, offset=40)
    assert [found.offset for found in received] == list(range(40, 100))


def test_records_that_are_not_there_cannot_be_deleted(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    admin = confluent_admin(broker.bootstrap)
    place = TopicPartition(topic, 0, 5)
    error = admin.delete_records([place])[place].exception(DEADLINE_SECONDS)
    assert error is not None
    assert error.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


# -- waiting -----------------------------------------------------------------------------------------------


async def test_a_waiting_consumer_gets_each_message_as_it_comes(broker: BrokerProcess, topic: str) -> None:
    """The consumer asks first and may wait for minutes: only the message itself can end its poll."""
    create_topic(broker.bootstrap, topic)
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "fetch_max_wait_ms": 600_000,
        "request_timeout_ms": 700_000,
    }
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    consumer = aiokafka.AIOKafkaConsumer(**settings)
    async with producer, consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        consumer.seek(aiokafka.TopicPartition(topic, 0), 0)
        for n in range(20):
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0.01)
            assert not waiting.done()
            await producer.send_and_wait(topic, b"%d" % n)
            message = await asyncio.wait_for(waiting, DEADLINE_SECONDS)
            assert (message.offset, message.value) == (n, b"%d" % n)


def test_two_topics_at_once(broker: BrokerProcess, topic: str) -> None:
    names = [f"{topic}-1", f"{topic}-2"]
    for name in names:
        create_topic(broker.bootstrap, name, 2)
    consumer = confluent_consumer(broker.bootstrap)
    try:
        consumer.assign([TopicPartition(name, p, 0) for name in names for p in range(2)])
        for name in names:
            messages = [Message(b"%s %d" % (name.encode(), n), partition=n % 2) for n in range(100)]
            CLIENTS[0].produce(broker.bootstrap, name, messages)
        found: dict[Any, list[Any]] = {}
        for message in consumer.consume(200, DEADLINE_SECONDS):
            assert message.error() is None
            found.setdefault((message.topic(), message.partition()), []).append(message.value())
    finally:
        consumer.close()
    assert found == {
        (name, p): [b"%s %d" % (name.encode(), n) for n in range(p, 100, 2)]
        for name in names
        for p in range(2)
    }


def test_sixty_four_partitions(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 64)
    messages = [Message(b"%d" % n, partition=n % 64) for n in range(64 * 20)]
    CLIENTS[0].produce(broker.bootstrap, topic, messages)
    consumer = confluent_consumer(broker.bootstrap)
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(64)])
        found: dict[Any, list[Any]] = {}
        for message in consumer.consume(len(messages), DEADLINE_SECONDS):
            found.setdefault(message.partition(), []).append(message.value())
    finally:
        consumer.close()
    assert found == {p: [b"%d" % n for n in range(p, 64 * 20, 64)] for p in range(64)}
