"""How far a running pipeline is behind its topics, asked of the brokers now: in messages, and in seconds.

Messages are offsets between the end of the last batch and the end of the log. Seconds are the age of the
first message that no batch has, which only that message can tell: one is read of each partition that is
behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from forebay.spark.metrics import loaded
from forebay.spark.pipelines.brokers import Brokers
from forebay.spark.source.offset_lookup import offsets_at
from forebay.spark.source.offset_ranges import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    TopicPartition,
    from_json,
)

ASKED_MAX = 32
"""Of the partitions that are behind, those that are most are asked for their first message."""
_LOOKED_AT = 100
"""Offsets among which the first message is looked for: some hold none."""
_TIMES = pa.schema([("timestamp", pa.timestamp("us", "UTC"))])


class Lag(NamedTuple):
    messages: int
    seconds: float | None
    """None if no message tells: those that are left are not committed, or were deleted."""


def lag_of(brokers: Brokers, sources: Iterable[Mapping[str, Any]], now_s: float) -> Lag | None:
    """Of a query whose last progress has these sources; None if it reads no topic, or had no batch yet."""
    reached: Offsets = {}
    for source in sources:
        reached |= _topic_offsets(loaded(source["endOffset"]))
    if not reached:
        return None
    cluster = brokers.cluster()
    first = offsets_at(cluster, dict.fromkeys(reached, EARLIEST))
    ends = offsets_at(cluster, dict.fromkeys(reached, LATEST), read_committed=True)
    positions = {at: max(offset, first[at]) for at, offset in reached.items()}
    behind = {at: ends[at] - positions[at] for at in reached if ends[at] > positions[at]}
    if not behind:
        return Lag(0, 0.0)
    most = sorted(behind, key=lambda at: -behind[at])[:ASKED_MAX]
    oldest = [_time_s(brokers, at, positions[at], ends[at]) for at in most]
    known = [time_s for time_s in oldest if time_s is not None]
    return Lag(sum(behind.values()), max(0.0, now_s - min(known)) if known else None)


def _topic_offsets(found: Any) -> Offsets:
    """The archive that a replay reads has offsets of another form."""
    if not isinstance(found, Mapping) or not all(isinstance(inner, Mapping) for inner in found.values()):
        return {}
    return from_json(found)


def _time_s(brokers: Brokers, at: TopicPartition, start: int, end: int) -> float | None:
    wanted = OffsetRange(at, start, min(end, start + _LOOKED_AT))
    rows = brokers.reading(at.topic, _TIMES).read(wanted)
    for batch in rows:
        return float(batch.column(0)[0].value) / 1_000_000
    return None
