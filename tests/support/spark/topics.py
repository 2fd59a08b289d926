"""Topics as the tests of pipelines see them from outside: with librdkafka, reading what is committed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

DEADLINE_SECONDS = 60.0
NINE_MS = 1_763_197_200_000
"""2025-11-15 09:00 UTC."""

Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int = NINE_MS
    headers: Headers = ()


class Found(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: Headers

    @property
    def content(self) -> tuple[bytes | None, bytes | None, int, Headers]:
        return self[2:]


def make(bootstrap: str, **partitions: int) -> None:
    """Topics by name, with their partitions; an underscore in a name stands for a dash.

    They keep messages for ever: those of the tests are old, and retention would take them in a long run.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic(name.replace("_", "-"), count, config={"retention.ms": "-1"})
        for name, count in partitions.items()
    ]
    for future in admin.create_topics(topics).values():
        future.result(DEADLINE_SECONDS)


def send(bootstrap: str, topic: str, messages: Iterable[Sent], codec: str = "lz4") -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    for message in messages:
        producer.produce(
            topic,
            message.value,
            message.key,
            message.partition,
            timestamp=message.timestamp_ms,
            headers=list(message.headers),
        )
    assert producer.flush(DEADLINE_SECONDS) == 0


def contents(bootstrap: str, topic: str) -> list[Found]:
    """Everything that is committed, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "contents",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # the end is told when a fetch has found nothing
            "isolation.level": "read_committed",
        }
    )
    try:
        return sorted(_read(consumer, topic), key=lambda found: found[:2])
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str) -> list[Found]:
    numbers = sorted(consumer.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    unfinished = set(numbers)
    found = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while unfinished:
        assert time.monotonic() < deadline, f"{topic} has no end"
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
            found.append(
                Found(
                    message.partition() or 0,
                    message.offset() or 0,
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    tuple(headers),
                )
            )
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            unfinished.discard(message.partition() or 0)
    return found
