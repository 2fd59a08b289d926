"""Decides whose turn it is among the connections that share a quota.

All connections that were refused come back at about the same time, when the quota has room again. Without an
order the fastest of them would be served each time, and the others never. So they are remembered in the order
of their refusals, with the time at which each was told to come back. One that comes before its turn is sent
back for YIELD_S. One that is later than that loses its place.
"""

from __future__ import annotations

YIELD_S = 0.1
WAITING_MAX = 1_000
"""The number of connections that are remembered. Closed ones are forgotten when others come."""


class Turns:
    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[int, float] = {}
        """The connections that were refused, in that order, and the time until which each waits."""

    def __len__(self) -> int:
        return len(self._waiting)

    def refuse(self, who: int, until: float) -> None:
        """Add a connection at the end; one that is listed already keeps its place."""
        waiting = self._waiting
        if len(waiting) >= WAITING_MAX and who not in waiting:
            del waiting[next(iter(waiting))]
        waiting[who] = until

    def has_turn(self, who: int, now: float) -> bool:
        """True if no other connection has waited for longer, except those that are too late."""
        waiting = self._waiting
        while waiting:
            ahead, until = next(iter(waiting.items()))
            if ahead == who or until + YIELD_S > now:
                return ahead == who
            del waiting[ahead]
        return True

    def serve(self, who: int) -> None:
        self._waiting.pop(who, None)
