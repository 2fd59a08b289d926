"""The settings of a share group that its share partitions follow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    record_locks_max: int = 2_000
    """Offsets in the window. A whole batch may exceed it."""
    may_renew: bool = True
    backoff_ms: int = 0
    """Pause after the first delivery, twice as long after each further one; 0: none."""
    backoff_ms_max: int = 60_000
    has_dead_letters: bool = False
    """Whether rejected and exhausted records go to a dead-letter topic."""

    def backoff_after(self, delivery_count: int) -> int:
        return min(self.backoff_ms << (delivery_count - 1), self.backoff_ms_max)
