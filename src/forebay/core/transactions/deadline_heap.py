"""Which of many things is due first: a heap that forgets lazily, with at most one live entry per name.

A deadline that moves to later leaves its entry where it is; when that comes up, its owner looks at the truth
and schedules it again. So the common case, a transaction that ends long before its timeout, costs nothing.
"""

from __future__ import annotations

import heapq

_SLACK = 64


class Deadlines:
    __slots__ = ("_at", "heap")

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self.heap: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._at)

    def schedule(self, name: str, at_ms: int) -> None:
        """Have the name come up no later than this."""
        scheduled = self._at.get(name)
        if scheduled is not None and scheduled <= at_ms:
            return
        self._at[name] = at_ms
        heapq.heappush(self.heap, (at_ms, name))
        if len(self.heap) > 2 * len(self._at) + _SLACK:
            self.heap = [(at, each) for each, at in self._at.items()]
            heapq.heapify(self.heap)

    @property
    def next_ms(self) -> int | None:
        heap = self.heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> str | None:
        """A name whose time has come; it is no longer scheduled."""
        at_ms = self.next_ms
        if at_ms is None or at_ms > now_ms:
            return None
        _, name = heapq.heappop(self.heap)
        del self._at[name]
        return name
