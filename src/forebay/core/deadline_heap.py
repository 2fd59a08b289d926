"""The deadlines of a shard in one heap: which of many timers is due first.

A heartbeat moves a deadline into the future, which happens far more often than a deadline passes. So moving
one later only notes the new time; the entry in the heap is corrected when it comes up. Each timer has about
one entry, and a heartbeat costs two dictionary lookups.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[str, ...] | str)

_SLACK = 1024
"""Outdated entries that the heap may have beside as many as there are timers."""


class DeadlineHeap(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        """The time under which each key's valid entry lies in the heap."""
        self.heap: list[tuple[int, K]] = []

    def __len__(self) -> int:
        return len(self._deadlines)

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._queued[key] = deadline_ms
            heappush(self.heap, (deadline_ms, key))
            if len(self.heap) > 2 * len(self._deadlines) + _SLACK:
                self._rebuild()

    def set_no_later(self, key: K, deadline_ms: int) -> None:
        """Like `set`, but an earlier deadline stays."""
        if deadline_ms < self._deadlines.get(key, deadline_ms + 1):
            self.set(key, deadline_ms)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        self._drop_stale_entries()
        return self.heap[0][0] if self.heap else None

    def pop_due(self, now_ms: int) -> K | None:
        """Take out one timer whose time has come."""
        self._drop_stale_entries()
        if not self.heap or self.heap[0][0] > now_ms:
            return None
        _, key = heappop(self.heap)
        del self._queued[key], self._deadlines[key]
        return key

    def _drop_stale_entries(self) -> None:
        """Make the first entry of the heap a valid one."""
        while self.heap:
            at, key = self.heap[0]
            wanted = self._deadlines.get(key)
            if self._queued.get(key) != at:
                heappop(self.heap)
            elif wanted is None:
                heappop(self.heap)
                del self._queued[key]
            elif wanted > at:
                self._queued[key] = wanted
                heapreplace(self.heap, (wanted, key))
            else:
                return

    def _rebuild(self) -> None:
        self._queued = dict(self._deadlines)
        self.heap = [(at, key) for key, at in self._deadlines.items()]
        heapify(self.heap)
