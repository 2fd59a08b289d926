"""The settings of a share group that its share partitions follow."""

from __future__ import annotations

from typing import Self

from forebay.config import ShareGroupSettings
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    lock_ms: int = 30_000
    delivery_count_limit: int = 5
    record_locks_max: int = 2_000
    """The most offsets in the window. A whole batch may exceed it."""
    may_renew: bool = True
    backoff_ms: int = 0
    """The pause after the first delivery, doubled after each further one; 0: none."""
    backoff_ms_max: int = 60_000
    has_dead_letters: bool = False
    """True if rejected and exhausted records go to a dead-letter topic."""

    @classmethod
    def of(cls, group: ShareGroupSettings) -> Self:
        return cls(
            lock_ms=group.record_lock_duration_ms,
            delivery_count_limit=group.delivery_count_limit,
            record_locks_max=group.partition_max_record_locks,
            may_renew=group.renew_enabled,
            backoff_ms=group.retry_backoff_ms,
            backoff_ms_max=group.retry_backoff_ms_max,
            has_dead_letters=bool(group.dead_letter_topic),
        )

    def backoff_after(self, delivery_count: int) -> int:
        return min(self.backoff_ms << (delivery_count - 1), self.backoff_ms_max)
