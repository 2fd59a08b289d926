"""A clock for tests that moves when it is told to."""

from __future__ import annotations

import time


class ManualClock:
    """A clock that moves when it is told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def thread_cpu(self) -> float:
        return self._monotonic

    def core_wait(self, thread: int) -> float:
        return 0.0

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)  # meanwhile somebody else moves it

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic += ms / 1000

    def step(self, ms: int) -> None:
        """Set the wall clock forward or back, while no time passes."""
        self._now_ms += ms
