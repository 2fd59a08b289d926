"""How short cores are: the part of the time in which the event loop was ready to run and had none."""

from __future__ import annotations

from collections.abc import Callable

_WINDOW_S = 0.02
"""A shorter time says little about how long the loop waits for cores."""
_PART_MAX = 0.9


class CoreShortage:
    """That part, of late."""

    def __init__(self, now: Callable[[], float], core_wait: Callable[[], float]) -> None:
        """`core_wait`: how many seconds the loop has waited for a core since it began."""
        self._now = now
        self._core_wait = core_wait
        self._since_s, self._waited_s = now(), core_wait()
        self._part = 0.0

    @property
    def part(self) -> float:
        now_s = self._now()
        passed_s = now_s - self._since_s
        if passed_s >= _WINDOW_S:
            waited_s = max(self._core_wait(), self._waited_s)  # 0 where it could not be read
            self._part = min(max(waited_s - self._waited_s, 0.0) / passed_s, _PART_MAX)
            self._since_s, self._waited_s = now_s, waited_s
        return self._part

    def rest_s(self, cpu_s: float, times: float) -> float:
        """How long to rest after work that took this much CPU: so many `times` as long where the loop waits
        for half of the time, more where it waits for more, and not at all where it has its core."""
        part = self.part
        return cpu_s * times * part / (1 - part)
