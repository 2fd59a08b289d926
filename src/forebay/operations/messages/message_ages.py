"""The ages of single messages: read by a consumer that joins no group and commits nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from forebay.operations.client import Client
from forebay.operations.messages.log_offsets import Place

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_AGES_SECONDS_MAX = 5.0
"""After this time, partitions without an answer have no age."""


def message_ages(client: Client, offsets: Mapping[Place, int]) -> dict[Place, float]:
    """Seconds since the first message at or after the offset was made, by its timestamp."""
    from confluent_kafka import TopicPartition

    if not offsets:
        return {}
    consumer = client.consumer(_peeking())
    try:
        starts = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        consumer.assign(starts)
        return _first_ages(consumer, starts)
    finally:
        consumer.close()


def _first_ages(consumer: Consumer, starts: Sequence[TopicPartition]) -> dict[Place, float]:
    """The ages. A partition with only transaction markers left has none: nothing is waiting."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError

    waiting = {(place.topic, place.partition) for place in starts}
    ages: dict[Place, float] = {}
    now_s = time.time()
    deadline = time.monotonic() + _AGES_SECONDS_MAX
    while waiting and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.1):
            place = (message.topic() or "", message.partition() or 0)
            error = message.error()
            if place not in waiting or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                continue
            waiting.discard(place)
            kind, timestamp_ms = message.timestamp()
            if error is not None:
                ages[place] = 0.0
            elif kind != TIMESTAMP_NOT_AVAILABLE:
                ages[place] = max(0.0, round(now_s - timestamp_ms / 1000, 3))
            consumer.incremental_unassign([_at(place)])
    return ages


def _at(place: Place) -> TopicPartition:
    from confluent_kafka import TopicPartition

    return TopicPartition(*place)


def _peeking() -> dict[str, object]:
    return {
        # The client library insists on a group; without subscription or commit it is never joined.
        "group.id": "forebay-cli",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
        "check.crcs": False,
        "fetch.wait.max.ms": 50,
        # One message is wanted; the broker sends one batch in any case.
        "fetch.message.max.bytes": 1024,
        "queued.max.messages.kbytes": 1024,
    }
