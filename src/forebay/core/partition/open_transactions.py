"""Transactions of a partition that bound what readers of committed messages see.

A transaction begins with a producer's first transactional batch and ends with a marker. It stays *unstable*
until its marker is committed, that is, below the high watermark: only then is the outcome final. The first
offset of all unstable transactions bounds the last stable offset.

Batches begin transactions in the order of the log, so an insertion-ordered dict is sorted by first offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    commit: bool
    last_stable_offset: int
    """The last stable offset once the marker is committed."""


class _Ending(NamedTuple):
    first_offset: int
    last_offset: int


class OpenTransactions:
    __slots__ = ("_ending", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """First offset by producer id, ascending."""
        self._ending: list[_Ending] = []
        """Ended by a marker that may not be committed yet, in the order of the markers."""

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[int]:
        """The producers with an open transaction."""
        return iter(self._open)

    def begin(self, producer_id: int, first_offset: int) -> None:
        self._open[producer_id] = first_offset

    def load(self, transactions: Iterable[tuple[int, int]]) -> None:
        """Replace all open transactions by these (producer id, first offset), in any order."""
        self._open = dict(sorted(transactions, key=lambda transaction: transaction[1]))

    def end(self, producer_id: int, last_offset: int) -> tuple[int, int]:
        """The first offset of the producer's transaction, and the last stable offset after it."""
        first_offset = self._open.pop(producer_id)
        self._ending.append(_Ending(first_offset, last_offset))
        return first_offset, next(iter(self._open.values()), last_offset + 1)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        self.settle(high_watermark)
        first = next(iter(self._open.values()), None)
        for ending in self._ending:
            if first is None or ending.first_offset < first:
                first = ending.first_offset
        return first

    def settle(self, high_watermark: int) -> None:
        """Note that markers below the high watermark are committed and will not be undone."""
        if self._ending and self._ending[0].last_offset < high_watermark:
            settled = bisect_left(self._ending, high_watermark, key=lambda ending: ending.last_offset)
            del self._ending[:settled]

    def undo(self, offset: int) -> None:
        """Forget the markers from this offset on; `load` then says what is open again."""
        while self._ending and self._ending[-1].last_offset >= offset:
            self._ending.pop()
