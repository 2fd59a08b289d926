"""A wall clock that a test sets."""

from __future__ import annotations

from forebay.clock import SystemClock


class SettableClock(SystemClock):
    """The system's time, set forward or back by this much."""

    step_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms
