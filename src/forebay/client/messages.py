"""A message that was received, and one that is to be sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import confluent_kafka

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""
Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One that a partition holds, at its offset there."""

    topic: str
    partition: int
    offset: int
    """-1 when it is not known: a producer without acknowledgements never learns it."""
    timestamp_ms: int
    """When it was created, or appended, as the topic says; -1 when it is not known."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1
    """The term of the leader that appended it; -1 when it is not known."""

    def header(self, name: str) -> bytes | None:
        """The last header of that name, as Kafka's clients have it."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One to be sent; what is left out is decided by the partitioner and the clock."""

    topic: str
    key: str | bytes | None = None
    value: str | bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def from_kafka(raw: confluent_kafka.Message) -> Message:
    return Message(**fields_of(raw))


def fields_of(raw: confluent_kafka.Message) -> dict[str, Any]:
    """The fields of `Message`, for it and for what extends it."""
    topic, partition, offset, epoch = raw.topic(), raw.partition(), raw.offset(), raw.leader_epoch()
    assert topic is not None
    return {
        "topic": topic,
        "partition": -1 if partition is None else partition,
        "offset": -1 if offset is None else max(offset, -1),
        "timestamp_ms": raw.timestamp()[1],
        "key": raw.key(),
        "value": raw.value(),
        "headers": _headers(raw),
        "leader_epoch": -1 if epoch is None else epoch,
    }


def _headers(raw: confluent_kafka.Message) -> tuple[tuple[str, bytes | None], ...]:
    headers = raw.headers()
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
