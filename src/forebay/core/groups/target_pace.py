"""How soon a group may make another target assignment.

A target costs time by the group's members and partitions, and each member that joins needs a new one. If a
thousand members join a group one after the other, and each had a target made at once, the cost of joining
would grow with the square of their number. So a large group makes one target for all members that came in a
while: the while is about ten times what making the target takes. Small groups wait for nothing.
"""

from __future__ import annotations

AT_ONCE_MAX = 500
"""Members and partitions of a group whose targets are made at once."""
_PER_MS = 20
"""Each takes about 5 µs."""
_WAIT_MS_MAX = 5_000
SOON_MS = 100
"""The minimum time between two heartbeats of a member that waits for a new target."""


class TargetPace:
    __slots__ = ("_ready_ms",)

    def __init__(self) -> None:
        self._ready_ms = 0

    def made(self, members: int, partitions: int, now_ms: int) -> None:
        """A target was made for so many."""
        size = members + partitions
        self._ready_ms = now_ms + min(size // _PER_MS, _WAIT_MS_MAX) if size > AT_ONCE_MAX else 0

    def wait_ms(self, now_ms: int) -> int:
        """How long until another target may be made."""
        return max(self._ready_ms - now_ms, 0)

    def skip(self) -> None:
        """Have the next one made at once."""
        self._ready_ms = 0


def heartbeat_interval_ms(interval_ms: int, wait_ms: int) -> int:
    """The time until a member's next heartbeat: it comes back as soon as there will be a new target."""
    return min(interval_ms, max(wait_ms, SOON_MS)) if wait_ms else interval_ms
