"""A received message, and a record to be sent, at once or later (docs/delays.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import confluent_kafka

from forebay.client.errors import ClientError
from forebay.lazy import dataclass

Place = tuple[str, int]
"""A topic and the index of one of its partitions."""
Headers = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]

DELIVER_AT = "forebay-deliver-at"
DELIVER_AFTER = "forebay-deliver-after"
SCHEDULE_KEY = "forebay-schedule-key"
CANCEL = "forebay-cancel"
SCHEDULE_KEY_BYTES_MAX = 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ID = re.compile(r"(\d{1,10})-(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message of a partition, with its offset there."""

    topic: str
    partition: int
    offset: int
    """-1 if it is not known: a producer without acknowledgements never learns it."""
    timestamp_ms: int
    """When it was created, or appended, depending on the topic; -1 if it is not known."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1
    """The epoch of the leader that appended it; -1 if it is not known."""

    @property
    def schedule_id(self) -> str:
        """The id of a delayed message, by which it can be cancelled."""
        return f"{self.partition}-{self.offset}"

    def header(self, name: str) -> bytes | None:
        """The last header of that name, as in Kafka's clients."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record to be sent; the partitioner and the clock decide about omitted fields."""

    topic: str
    key: str | bytes | None = None
    value: str | bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    deliver_at: datetime | int | None = None
    """Not before this time, or these milliseconds since 1970; see docs/delays.md."""
    deliver_after: timedelta | float | None = None
    """Not before this much time, or this many seconds, after the broker has received it."""
    schedule_key: str | bytes | None = None
    """It replaces the message that waits under this key in its partition."""

    @property
    def is_scheduled(self) -> bool:
        has_time = self.deliver_at is not None or self.deliver_after is not None
        return has_time or self.schedule_key is not None


def from_kafka(raw: confluent_kafka.Message) -> Message:
    return Message(**fields_of(raw))


def fields_of(raw: confluent_kafka.Message) -> dict[str, Any]:
    """The fields of `Message`, for it and its subclasses."""
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


# -- messages for later: all is checked before anything is sent ----------------------------------------------


def schedule_headers(record: Record, given: Iterable[str]) -> list[tuple[str, str | bytes | None]]:
    """The headers to add to those that the record has. Raises ClientError."""
    headers: list[tuple[str, str | bytes | None]] = []
    if record.deliver_at is not None and record.deliver_after is not None:
        raise ClientError("deliver_at and deliver_after exclude each other")
    if record.deliver_at is not None:
        headers.append((DELIVER_AT, str(_point_in_time_ms(record.deliver_at))))
    if record.deliver_after is not None:
        headers.append((DELIVER_AFTER, str(_duration_ms(record.deliver_after))))
    if record.schedule_key is not None:
        if not record.value and record.deliver_at is None and record.deliver_after is None:
            raise ClientError("no value and no time under a schedule_key cancels what waits: use cancel()")
        headers.append((SCHEDULE_KEY, _schedule_key(record)))
    for name in given:
        if any(name == ours for ours, _ in headers):
            raise ClientError(f"the header {name} is given, too")
    return headers


def cancellation(
    topic: str,
    schedule_key: str | bytes | None,
    *,
    schedule_id: str | None,
    key: str | bytes | None,
    partition: int | None,
) -> Record:
    """The record that cancels a delayed message. Raises ClientError."""
    if (schedule_key is None) == (schedule_id is None):
        raise ClientError("cancel by a schedule_key or by a schedule_id")
    if schedule_id is None:
        record = Record(topic=topic, key=key, partition=partition, schedule_key=schedule_key)
        return Record(
            topic=topic, key=key, partition=partition, headers=[(SCHEDULE_KEY, _schedule_key(record))]
        )
    match = _ID.fullmatch(schedule_id)
    if match is None:
        raise ClientError(f"{schedule_id!r} is not a schedule id, such as Message.schedule_id")
    if partition not in (None, int(match[1])):
        raise ClientError(f"{schedule_id} is not in partition {partition}")
    return Record(topic=topic, key=key, partition=int(match[1]), headers=[(CANCEL, schedule_id)])


def _point_in_time_ms(at: datetime | int) -> int:
    if isinstance(at, datetime):
        if at.utcoffset() is None:
            raise ClientError(f"deliver_at={at.isoformat()} has no time zone: datetime.now(UTC) has one")
        at = -((_EPOCH - at) // _MILLISECOND)  # rounded up: never early
    elif isinstance(at, bool) or not isinstance(at, int):
        raise ClientError(f"deliver_at={at!r} is neither a datetime nor whole milliseconds since 1970")
    if at < 0:
        raise ClientError("deliver_at is before 1970")
    return at


def _duration_ms(after: timedelta | float) -> int:
    if isinstance(after, timedelta):
        milliseconds = -(-after // _MILLISECOND)
    elif isinstance(after, bool) or not isinstance(after, (int, float)) or not math.isfinite(after):
        raise ClientError(f"deliver_after={after!r} is neither a timedelta nor a number of seconds")
    else:
        milliseconds = math.ceil(round(after * 1000, 3))
    if milliseconds < 0:
        raise ClientError(f"deliver_after={after} is negative")
    return milliseconds


def _schedule_key(record: Record) -> bytes:
    key = record.schedule_key
    assert key is not None
    encoded = key.encode() if isinstance(key, str) else bytes(key)
    if not 0 < len(encoded) <= SCHEDULE_KEY_BYTES_MAX:
        raise ClientError(f"a schedule_key has 1 to {SCHEDULE_KEY_BYTES_MAX} bytes, not {len(encoded)}")
    if record.key is None and record.partition is None:
        raise ClientError("a schedule_key counts within a partition: give a key, or a partition")
    return encoded
