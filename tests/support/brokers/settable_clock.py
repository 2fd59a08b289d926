"""Clocks that a test sets."""

from __future__ import annotations

from forebay.clock import SystemClock


class SettableClock(SystemClock):
    """The system's time, set forward or back by this much."""

    step_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.step_ms


class ForwardClock(SystemClock):
    """The system's time, of which a test lets more pass, by all clocks."""

    passed_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.passed_ms

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_ms / 1000
