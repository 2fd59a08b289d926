"""A loop that has a core for a part of the time, turns of it, and time that passes as a test says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from forebay.broker.yielding.core_shortage import CoreShortage


class CrowdedLoop:
    def __init__(self, part: float) -> None:
        """`part` of the time it has a core; for the rest it waits for one."""
        self._part = part
        self.now = 0.0
        self.ready: list[Callable[[], None]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def thread_cpu(self) -> float:
        return self.now * self._part

    def core_wait(self) -> float:
        return self.now * (1 - self._part)

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.ready.append(partial(callback, *args))

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self.later.append((self.now + seconds, partial(callback, *args)))

    def turn(self) -> None:
        ready, self.ready = self.ready, []
        for callback in ready:
            callback()

    def wake(self) -> None:
        """The first pause is over."""
        first = min(self.later, key=lambda timer: timer[0])
        self.later.remove(first)
        due_s, callback = first
        self.now = max(self.now, due_s)
        callback()

    def shortage(self) -> CoreShortage:
        """How short cores are, after it has been measured for a while."""
        shortage = CoreShortage(self.time, self.core_wait)
        self.now += 1.0
        return shortage
