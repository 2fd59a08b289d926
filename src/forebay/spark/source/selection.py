"""A batch read can leave out parts of its topics: other partitions, offsets and times than those asked for.

Partitions and offsets decide which ranges are read at all. A lower bound on the timestamp moves the start of
a range forward, since a broker knows the first record that is as young. Records behind it may be older again,
as producers give the time, so rows are compared too.

These are options of a read, and not filters that Spark pushes down: Spark keeps one read plan for each
`load()` of a Python source, so that a filter of one query would hold for all others of the same DataFrame.
"""

from __future__ import annotations

from forebay.lazy import dataclass
from forebay.spark.source.decode import Rows
from forebay.spark.source.offset_ranges import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Whole numbers from low to high, both included; None is no bound."""

    low: int | None = None
    high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    partitions: frozenset[int] | None = None
    """The numbers of the partitions, of every topic; None for all."""
    offsets: Interval = Interval()
    timestamps_ms: Interval = Interval()

    def includes(self, at: TopicPartition) -> bool:
        return self.partitions is None or at.partition in self.partitions

    @property
    def rows(self) -> Rows:
        return Rows(timestamp_ms_min=self.timestamps_ms.low, timestamp_ms_max=self.timestamps_ms.high)


EVERYTHING = Selection()
