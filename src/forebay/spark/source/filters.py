"""Filters of a query that a batch read can use: on topic, partition, offset and timestamp.

Topic, partition and offset decide which ranges are read at all. A lower bound on the timestamp moves the
start of a range forward, since a broker knows the first record that is as young; records behind it may be
older again, as producers give the time, so rows are compared too. What is used here is not evaluated by
Spark again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from forebay.spark.source.decode import Rows
from forebay.spark.source.offset_ranges import TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = {"topic", "partition", "offset", "timestamp", "timestampType"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Whole numbers from low to high, both included; None is no bound."""

    low: int | None = None
    high: int | None = None

    def narrowed(self, low: int | None, high: int | None) -> Interval:
        lows = [bound for bound in (self.low, low) if bound is not None]
        highs = [bound for bound in (self.high, high) if bound is not None]
        return Interval(low=max(lows, default=None), high=min(highs, default=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What all filters leave of a subscription."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_bounds: Interval = Interval()
    offsets: Interval = Interval()
    timestamps_us: Interval = Interval()

    def includes(self, at: TopicPartition) -> bool:
        bounds = self.partition_bounds
        return (
            (self.topics is None or at.topic in self.topics)
            and (self.partitions is None or at.partition in self.partitions)
            and (bounds.low is None or at.partition >= bounds.low)
            and (bounds.high is None or at.partition <= bounds.high)
        )

    @property
    def timestamp_ms_min(self) -> int | None:
        """The oldest timestamp that can pass, in the unit of brokers."""
        low = self.timestamps_us.low
        # A record without a timestamp has -1, for which a broker cannot be asked.
        return None if low is None or low < 0 else -(-low // 1000)

    @property
    def rows(self) -> Rows:
        return Rows(timestamp_us_min=self.timestamps_us.low, timestamp_us_max=self.timestamps_us.high)


def select(filters: Iterable[Filter], selection: Selection) -> tuple[Selection, list[Filter]]:
    """The selection narrowed by the filters that can be used, and the others."""
    unused: list[Filter] = []
    for wanted in filters:
        narrowed = _narrowed(selection, wanted)
        if narrowed is None:
            unused.append(wanted)
        else:
            selection = narrowed
    return selection, unused


def _narrowed(selection: Selection, wanted: Filter) -> Selection | None:
    name = ".".join(getattr(wanted, "attribute", ()))
    if isinstance(wanted, IsNotNull):
        return selection if name in _NEVER_NULL else None
    if name == "topic":
        return _by_topic(selection, wanted)
    if name == "partition" and isinstance(wanted, In):
        return _by_partitions(selection, wanted.value)
    if name in ("partition", "offset", "timestamp"):
        return _by_bounds(selection, name, wanted)
    return None


def _by_topic(selection: Selection, wanted: Filter) -> Selection | None:
    if isinstance(wanted, EqualTo | EqualNullSafe):
        names = frozenset([wanted.value])
    elif isinstance(wanted, In):
        names = frozenset(wanted.value)
    else:
        return None
    return replace(selection, topics=names if selection.topics is None else selection.topics & names)


def _by_partitions(selection: Selection, values: Iterable[Any]) -> Selection | None:
    numbers = frozenset(values)
    if not all(type(number) is int for number in numbers):
        return None
    known = selection.partitions
    return replace(selection, partitions=numbers if known is None else known & numbers)


def _by_bounds(selection: Selection, name: str, wanted: Filter) -> Selection | None:
    value = _number(getattr(wanted, "value", None))
    if value is None:
        return None
    for low, high in _bounds(wanted, value):
        match name:
            case "partition":
                return replace(selection, partition_bounds=selection.partition_bounds.narrowed(low, high))
            case "offset":
                return replace(selection, offsets=selection.offsets.narrowed(low, high))
            case "timestamp":
                return replace(selection, timestamps_us=selection.timestamps_us.narrowed(low, high))
    return None


def _bounds(wanted: Filter, value: int) -> Iterator[tuple[int | None, int | None]]:
    """The lowest and highest value that passes; nothing for a filter of another kind."""
    match wanted:
        case EqualTo() | EqualNullSafe():
            yield value, value
        case GreaterThan():
            yield value + 1, None
        case GreaterThanOrEqual():
            yield value, None
        case LessThan():
            yield None, value - 1
        case LessThanOrEqual():
            yield None, value


def _number(value: object) -> int | None:
    """Whole numbers as they are; moments as microseconds since 1970."""
    if type(value) is int:
        return value
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.astimezone()
        return (moment - _EPOCH) // timedelta(microseconds=1)
    return None
