"""Positions in topics, and the arithmetic on them: no broker is asked here.

A stream's offset is a dict of topic to partition to offset, as in Spark's Kafka source, with the ids of the
topics beside them: a topic that was deleted and made anew has the name of the old one and not its records.

Everything that shapes a micro-batch depends on its start, its end and the options
only: a batch that Spark runs again after a failure is cut into the same tasks, which is what an exactly-once
sink needs.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from forebay.errors import ConfigError
from forebay.lazy import dataclass

IDS_KEY = "topic:ids"
"""Beside the topics in a stream's offset; the colon keeps it apart from every topic's name."""
BEGAN_KEY = "topic:began"
"""Beside them in the end of a stream's first batch: where that batch begins.

Spark notes the end of a batch only. A batch that a kill has interrupted begins where the one before it ended;
the first one begins where `initialOffset` says, which Spark asks for again.
"""
NO_TOPICS = (IDS_KEY, BEGAN_KEY)
"""All keys of a stream's offset that are no topics."""
LATEST = -1
EARLIEST = -2
LATEST_TIERED = -5
"""The last offset in an object store; -1 if there is none."""
EARLIEST_LOCAL = -4
"""The first offset on the disks of brokers; those before it, if there are any, are in an object store."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """Offsets start <= offset < end of a partition."""

    at: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where reading starts or ends: the same for all partitions, or one by one."""

    everywhere: int | None = None
    """EARLIEST, LATEST, or a timestamp in milliseconds."""
    by_partition: tuple[tuple[TopicPartition, int], ...] = ()
    is_timestamp: bool = False
    option: str = ""
    """The option that said so, for messages."""

    def given_offsets(self) -> frozenset[TopicPartition]:
        """The partitions whose offset is a number, not a time and not an end of the log."""
        known = () if self.is_timestamp else self.by_partition
        return frozenset(at for at, offset in known if offset >= 0)

    def of(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The position of each partition; ConfigError unless exactly these are named."""
        if self.everywhere is not None:
            return dict.fromkeys(partitions, self.everywhere)
        named = dict(self.by_partition)
        wanted = set(partitions)
        if wanted != named.keys():
            raise ConfigError(
                f"{self.option} must name every partition that is read:"
                f" {_differences(wanted - named.keys(), named.keys() - wanted)}"
                " (-1 stands for the latest, -2 for the earliest offset)"
            )
        return named


def _differences(missing: Iterable[TopicPartition], extra: Iterable[TopicPartition]) -> str:
    parts = []
    if missing := sorted(missing):
        parts.append(f"missing {', '.join(map(str, missing))}")
    if extra := sorted(extra):
        parts.append(f"not among them {', '.join(map(str, extra))}")
    return "; ".join(parts)


# -- as JSON -----------------------------------------------------------------------------------------------


def to_json(
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str] | None = None,
    began: Mapping[TopicPartition, int] | None = None,
) -> dict[str, Any]:
    """A stream's offset as Spark writes it to its log, in a fixed order."""
    topics: dict[str, Any] = {}
    for at in sorted(offsets):
        topics.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    known = {topic: ids[topic] for topic in topics if topic in ids} if ids else {}
    about: dict[str, Any] = {IDS_KEY: known} if known else {}
    if began is not None:
        about[BEGAN_KEY] = to_json(began)
    return topics | about


def from_json(topics: Mapping[str, Any]) -> Offsets:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in topics.items()
        if topic not in NO_TOPICS
        for partition, offset in partitions.items()
    }


def began_in(topics: Mapping[str, Any]) -> Offsets | None:
    """Where the stream's first batch begins, in the offset where that batch begins or ends; else None."""
    return from_json(topics[BEGAN_KEY]) if BEGAN_KEY in topics else None


def without_beginning(topics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in topics.items() if name != BEGAN_KEY}


def ids_in(topics: Mapping[str, Any]) -> dict[str, str]:
    """The ids that topics had; none in offsets of earlier versions, and of brokers without ids."""
    return dict(topics.get(IDS_KEY, {}))


def made_anew(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that were deleted, and made again under the same name."""
    return sorted(topic for topic, known in before.items() if now.get(topic, known) != known)


def parse_offsets(option: str, text: str) -> Offsets:
    """The JSON of an option such as {"orders": {"0": 23, "1": -2}}."""
    example = '{"topic": {"0": 23, "1": -2}}'
    try:
        offsets = from_json(_object(text))
        if not all(type(offset) is int for offset in offsets.values()):
            raise ValueError("offsets are whole numbers")
    except (ValueError, AttributeError) as error:
        raise ConfigError(f"{option}={text}: expected JSON such as {example} ({error})") from None
    return offsets


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """The JSON of an option such as {"orders": [0, 1]}."""
    try:
        found = sorted(
            {TopicPartition(topic, number) for topic, numbers in _object(text).items() for number in numbers}
        )
        if not all(type(at.partition) is int and at.partition >= 0 for at in found):
            raise ValueError("partitions are whole numbers")
    except (ValueError, TypeError) as error:
        raise ConfigError(f'{option}={text}: expected JSON such as {{"topic": [0, 1]}} ({error})') from None
    return tuple(found)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict) or not value:
        raise ValueError("not an object with at least one topic")
    return value


# -- how much, in how many tasks ---------------------------------------------------------------------------


def backlog(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """Offsets between two positions; a partition that `start` does not have counts as nothing."""
    return sum(max(0, offset - start.get(at, offset)) for at, offset in end.items())


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], rows_max: int) -> Offsets:
    """An end at most `rows_max` away, shared out by backlog.

    As in Spark's source, no partition with a backlog is left without progress, so that the sum may exceed the
    limit by a record for each such partition.
    """
    total = backlog(start, end)
    if total <= rows_max:
        return dict(end)
    return {
        at: min(offset, start.get(at, offset) + max(1, (offset - start.get(at, offset)) * rows_max // total))
        for at, offset in end.items()
    }


def split(ranges: Iterable[OffsetRange], *, tasks_min: int, records_max: int) -> list[OffsetRange]:
    """Cut the ranges that are not empty into tasks; 0 means that the limit is not set."""
    found = sorted(wanted for wanted in ranges if wanted.size > 0)
    if records_max:
        found = [part for whole in found for part in _cut(whole, -(-whole.size // records_max))]
    return [part for whole, count in _shares(found, tasks_min) for part in _cut(whole, count)]


class RangeGroup(NamedTuple):
    """Small ranges that one task reads, one after the other."""

    ranges: tuple[Any, ...]
    """Each is an OffsetRange, or one with segments in an object store (`remote/planning.py`)."""


def joined(ranges: list[OffsetRange], *, more_than: int, records_min: int) -> list[OffsetRange | RangeGroup]:
    """The ranges as tasks: where there are more than so many, small neighbours share one.

    A task then has up to `records_min` records, or more if there are more for `more_than` tasks. Like `split`
    it knows records, not bytes: a batch that is repeated must be cut in the same way.
    """
    if len(ranges) <= more_than or not records_min:
        return list(ranges)
    wanted = max(records_min, -(-sum(found.size for found in ranges) // max(1, more_than)))
    tasks: list[list[OffsetRange]] = [[]]
    size = 0
    for found in ranges:
        if tasks[-1] and size + found.size > wanted:
            tasks.append([])
            size = 0
        tasks[-1].append(found)
        size += found.size
    return [task[0] if len(task) == 1 else RangeGroup(tuple(task)) for task in tasks]


def _shares(ranges: list[OffsetRange], tasks: int) -> list[tuple[OffsetRange, int]]:
    """How many tasks each range becomes: whichever has the largest ones gets one more until they suffice."""
    counts = [1] * len(ranges)
    largest = [(-found.size, i) for i, found in enumerate(ranges)]
    heapq.heapify(largest)
    for _ in range(tasks - len(ranges) if ranges else 0):
        size, i = largest[0]
        if size >= -1:
            break  # a task has a record at least
        counts[i] += 1
        heapq.heapreplace(largest, (-ranges[i].size // counts[i], i))
    return list(zip(ranges, counts, strict=True))


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    edges = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [OffsetRange(whole.at, *edge) for edge in pairwise(edges)]
