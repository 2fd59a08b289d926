"""Clocks that a test sets."""

from __future__ import annotations

from forebay.clock import SystemClock


class SettableClock(SystemClock):
    """The system's time, set forward or back by this much."""

    step_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms


class StoppedClock(SystemClock):
    """The time at which it was made; a test lets more pass, by all clocks, however long it takes itself."""

    passed_ms = 0

    def __init__(self) -> None:
        self._now_ms, self._monotonic = super().now_ms(), super().monotonic()

    def now_ms(self) -> int:
        return self._now_ms + self.passed_ms

    def monotonic(self) -> float:
        return self._monotonic + self.passed_ms / 1000
