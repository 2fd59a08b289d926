"""What is stored of a topic's folds: which partitions are folded, and into which (`folding.py` decides)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Fold(NamedTuple):
    """Partitions `first` to `end` - 1 are folded: messages for p go to p modulo `divisor`."""

    first: int
    end: int
    divisor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """The folds of a topic, also those whose partitions are gone: clients may send to them for ever."""

    folds: tuple[Fold, ...]
    """Their ranges do not overlap. The one with the lowest partitions comes first."""
    closed_ms: int
    """When the last fold began."""
    drop_ms: int | None = None
    """When its partitions go, whatever they hold; None: when they are empty."""
    last_epoch: int = -1
    """The highest leader epoch of a partition that is gone."""

    @property
    def named_end(self) -> int:
        """Clients may name partitions below this number: so many there have been."""
        return self.folds[-1].end

    @property
    def closed_from(self) -> int:
        """The first partition that is closed, or was before it was taken away."""
        return self.folds[0].first

    def target(self, index: int) -> int | None:
        """Where messages for a partition go; None if it is not folded."""
        for fold in self.folds:
            if fold.first <= index < fold.end:
                return index % fold.divisor
        return None

    def path(self, index: int) -> Iterator[int]:
        """The partition, and those through which messages for it go, up to the one that stores them."""
        following: int | None = index
        while following is not None:
            yield following
            following = self.target(following)
