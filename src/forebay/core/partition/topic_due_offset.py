"""Limits reads of a partition whose topic delays all messages (`forebay.delay.ms`).

Messages become visible in the order of their offsets, when their timestamp is as old as the delay: everything
below the due offset is visible. It is updated on reads, and never goes back while the broker leads, so a
clock that is set back hides nothing that was seen.
"""

from __future__ import annotations

_PAUSE_MS = 10
"""The pause between two searches in one partition: messages may be this late."""


class DueOffset:
    __slots__ = ("_next_ms", "_searched_ms", "delay_ms", "offset")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self.offset = 0
        """Everything below it is due."""
        self._searched_ms = self._next_ms = 0

    def newest_due_ms(self, now_ms: int) -> int:
        """The newest timestamp that is due."""
        return now_ms - self.delay_ms

    def searched(self, offset: int, waiting_since: int | None, now_ms: int) -> bool:
        """Note a search's result: the first offset that is not due, and its timestamp (None: end of the log).

        Returns True if more is due than before.
        """
        due_ms = now_ms if waiting_since is None else waiting_since + self.delay_ms
        self._searched_ms = now_ms
        self._next_ms = max(due_ms, now_ms + _PAUSE_MS)
        if offset <= self.offset:
            return False
        self.offset = offset
        return True

    def search_in_ms(self, high_watermark: int, now_ms: int) -> int | None:
        """The time until the next search; 0 for at once, None while nothing waits."""
        if self.offset >= high_watermark:
            return None
        if now_ms < self._searched_ms:
            return 0  # the clock was set back: search now, not when it has caught up
        return max(self._next_ms - now_ms, 0)
