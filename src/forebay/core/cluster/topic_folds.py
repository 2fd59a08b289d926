"""What is stored of a topic's folds: which partitions are folded, and into which.

`fewer_partitions.py` decides about fewer of them, `more_partitions.py` about more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.lazy import dataclass

GENERATIONS_END = 1 << 9
"""Folds of a topic have generations below it."""


class Fold(NamedTuple):
    """Partitions `first` to `end` - 1 are folded: messages for p go to p modulo `divisor`."""

    first: int
    end: int
    divisor: int
    generation: int = 0
    """Tells this fold from earlier ones of the same partitions: no partition takes for the producer's last
    batch what an earlier fold has brought to it (`core/partition/folds/aliases.py`)."""


class Stop(NamedTuple):
    """A partition on the way of messages that clients send for one of them."""

    partition: int
    generation: int | None
    """Of the fold that leads there; None for the partition that clients have named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The topic gets more partitions: some that were folded take messages again."""

    former: tuple[Fold, ...]
    """The folds as they were before."""
    gathering: tuple[int, ...]
    """Partitions that take messages for others, or for themselves, as soon as they know their numbers."""
    draining: tuple[int, ...]
    """Partitions that took them before, and may have open transactions from that time."""

    @property
    def is_over(self) -> bool:
        return not self.gathering and not self.draining


class Gone(NamedTuple):
    """A partition that was taken away, and where it ended: whoever has come so far has read all of it."""

    partition: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """The folds of a topic, also those whose partitions are gone: clients may send to them for ever."""

    folds: tuple[Fold, ...]
    """Their ranges do not overlap and leave no gaps. The one with the lowest partitions comes first."""
    closed_ms: int
    """When the last fold began."""
    drop_ms: int | None = None
    """When its partitions go, whatever they hold; None: when they are empty."""
    last_epoch: int = -1
    """The highest leader epoch of a partition that is gone."""
    gone: tuple[Gone, ...] = ()
    """Partitions that were taken away."""
    generation: int = 0
    """Of the newest fold there has been."""
    growth: Growth | None = None
    """If the topic is getting more partitions at this moment."""
    copied: int | None = None
    """Of a topic that was compacted when the last fold began: its partitions below this one are copied to
    those that take their messages, and closed. It is the next, and open like those behind it. None: nothing
    is copied, and all are closed."""

    @property
    def named_end(self) -> int:
        """Clients may name partitions below this number, if they are folded: so many there have been."""
        return self.folds[-1].end if self.folds else 0

    def closed_from(self, count: int) -> int:
        """The first partition that is closed, or was before it was taken away, of `count`."""
        return min(count, self.folds[0].first) if self.folds else count

    @property
    def next_copy(self) -> int | None:
        """The partition that is copied now, and closed when that is done; None if there is none."""
        copied = self.copied
        return copied if copied is not None and copied < self.folds[0].end else None

    def keeps_deletions(self, index: int) -> bool:
        """Whether compaction must not forget deletions in a partition: their values may be copied already."""
        return self.copied is not None and index >= self.folds[0].first

    def copied_into(self, index: int) -> int:
        """Where the records of a partition of the last fold are copied."""
        return index % self.folds[0].divisor

    def is_gathering(self, index: int) -> bool:
        return self.growth is not None and index in self.growth.gathering

    def stops(self, index: int) -> Iterator[Stop]:
        """The partition, and those through which messages for it go, up to the one that stores them."""
        return stops(self._closed, index)

    @property
    def _closed(self) -> tuple[Fold, ...]:
        """The folds, without the partitions that are open until they are copied."""
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
