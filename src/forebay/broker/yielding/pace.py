"""How fast a thread may work that shares the interpreter, and the disk, with the event loop.

A thread that computes keeps the interpreter for milliseconds at a time, and the loop waits for it after each
of its system calls. So such a thread works in short stretches, and rests after each for long enough that the
loop gets its turn.

On a machine without a free core that is not enough: a thread that is ready to run takes a core from the loops
of brokers, its own among them. So one that yields rests for longer when it had to wait for a core itself.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay.clock import Clock

_STRETCH_SECONDS = 0.0005
_PAUSE_SECONDS = 0.0002
_LOST_TIMES = 2
_LOST_SECONDS_MAX = 0.05
_NAP_SECONDS_MAX = 0.1
"""A slow rate is kept by many short sleeps, so that a stop need not wait for a long one."""


class Stopped(Exception):
    """The broker stops, or the partition is gone; what was not finished yet is thrown away."""


class Pace:
    """Keeps a working thread from taking the interpreter, or the disk, for itself."""

    def __init__(
        self,
        clock: Clock,
        bytes_per_second_max: Callable[[], float] = lambda: float("inf"),
        *,
        yields: bool = False,
    ) -> None:
        """`yields`: for work in which nothing is waited for but a core and the interpreter."""
        self._now = clock.monotonic
        self._cpu = clock.thread_cpu if yields else None
        self._stretch_cpu = clock.thread_cpu()
        self._rest = clock.rest
        self._bytes_per_second_max = bytes_per_second_max
        self._began = self._stretch = self._now()
        self._bytes = 0
        self.stopped = False

    def spend(self, size: int = 0) -> None:
        """Take note of bytes read or written, and rest if it is time. Raises Stopped."""
        if self.stopped:
            raise Stopped
        self._bytes += size
        now = self._now()
        if now - self._stretch < _STRETCH_SECONDS:
            return
        due = self._began + self._bytes / self._bytes_per_second_max()
        self._rest(_PAUSE_SECONDS + self._lost(now))
        while not self.stopped and (left := due - self._now()) > 0:
            self._rest(min(left, _NAP_SECONDS_MAX))
        self._stretch = self._now()
        if self._cpu is not None:
            self._stretch_cpu = self._cpu()
        if due < self._stretch - 1:  # time that was not used is not saved up
            self._began, self._bytes = self._stretch, 0

    def _lost(self, now: float) -> float:
        """How much longer to rest because there was no core, or because the loop needed the interpreter."""
        if self._cpu is None:
            return 0.0
        waited = now - self._stretch - (self._cpu() - self._stretch_cpu)
        return min(max(waited, 0.0) * _LOST_TIMES, _LOST_SECONDS_MAX)
