"""The stored folds of a topic: which partitions are folded, and into which.

`fewer_partitions.py` reduces the number of partitions, `more_partitions.py` raises it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.lazy import dataclass

GENERATIONS_END = 1 << 9
"""Upper bound of the generations of a topic's folds."""


class Fold(NamedTuple):
    """Partitions `first` to `end` - 1 are folded: messages for p go to p modulo `divisor`."""

    first: int
    end: int
    divisor: int
    generation: int = 0
    """Distinguishes this fold from earlier folds of the same partitions: what an earlier fold brought is
    never mistaken for the producer's last batch (`core/partition/folds/aliases.py`)."""


class Stop(NamedTuple):
    """A partition through which messages go that clients send for another."""

    partition: int
    generation: int | None
    """The fold that leads there; None for the partition that clients have named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The topic gets more partitions: some that were folded take messages again."""

    former: tuple[Fold, ...]
    """The folds before the growth."""
    gathering: tuple[int, ...]
    """Partitions that take messages, for themselves or for others, once they have the sequence numbers."""
    draining: tuple[int, ...]
    """Partitions that took these messages before, and may have open transactions from that time."""

    @property
    def is_over(self) -> bool:
        return not self.gathering and not self.draining


class Gone(NamedTuple):
    """A partition that was removed, and its end offset: a consumer at that offset has read all of it."""

    partition: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """The folds of a topic, including those whose partitions are gone: clients may send to them for ever."""

    folds: tuple[Fold, ...]
    """Their ranges do not overlap and leave no gaps. The one with the lowest partitions comes first."""
    closed_ms: int
    """When the last fold began."""
    drop_ms: int | None = None
    """When its partitions are removed with their messages; None: when they are empty."""
    last_epoch: int = -1
    """The highest leader epoch of a removed partition."""
    gone: tuple[Gone, ...] = ()
    """Partitions that were removed."""
    generation: int = 0
    """The generation of the newest fold so far."""
    growth: Growth | None = None
    """Set while the topic is getting more partitions."""
    copied: int | None = None
    """For a topic that was compacted when the last fold began: the partitions of the fold below this one are
    copied and closed. This one is copied next, and is open like those after it. None: nothing is copied, and
    all are closed."""

    @property
    def named_end(self) -> int:
        """Clients may name folded partitions below this number: the most partitions the topic has had."""
        return self.folds[-1].end if self.folds else 0

    def closed_from(self, count: int) -> int:
        """The first closed or removed partition, if there are `count`."""
        return min(count, self.folds[0].first) if self.folds else count

    @property
    def next_copy(self) -> int | None:
        """The partition that is being copied, and is closed afterwards; None if there is none."""
        copied = self.copied
        return copied if copied is not None and copied < self.folds[0].end else None

    def keeps_deletions(self, index: int) -> bool:
        """True if compaction must keep the deletions in a partition: their values may be copied already."""
        return self.copied is not None and index >= self.folds[0].first

    def copied_into(self, index: int) -> int:
        """The partition into which the records of a partition of the last fold are copied."""
        return index % self.folds[0].divisor

    def is_gathering(self, index: int) -> bool:
        return self.growth is not None and index in self.growth.gathering

    def stops(self, index: int) -> Iterator[Stop]:
        """The partition, and those that its messages go through, up to the one that stores them."""
        return stops(self._closed, index)

    @property
    def _closed(self) -> tuple[Fold, ...]:
        """The folds, without the partitions that stay open until they are copied."""
        if self.copied is None:
            return self.folds
        newest, *others = self.folds
        return (newest._replace(end=self.copied), *others)


def stops(folds: tuple[Fold, ...], index: int) -> Iterator[Stop]:
    stop: Stop | None = Stop(index, None)
    while stop is not None:
        yield stop
        stop = _next(folds, stop.partition)


def _next(folds: tuple[Fold, ...], index: int) -> Stop | None:
    for fold in folds:
        if fold.first <= index < fold.end:
            return Stop(index % fold.divisor, fold.generation)
    return None
