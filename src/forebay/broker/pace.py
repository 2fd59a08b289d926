"""How fast a thread may work that shares the interpreter, and the disk, with the event loop.

A thread that computes keeps the interpreter for milliseconds at a time, and the loop waits for it after each
of its system calls. So such a thread works in short stretches, and rests after each for long enough that the
loop gets its turn.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay.clock import Clock

_STRETCH_SECONDS = 0.0005
_PAUSE_SECONDS = 0.0002
_NAP_SECONDS_MAX = 0.1
"""A slow rate is kept by many short sleeps, so that a stop need not wait for a long one."""


class Stopped(Exception):
    """The broker stops, or the partition is gone; what was not finished yet is thrown away."""


class Pace:
    """Keeps a working thread from taking the interpreter, or the disk, for itself."""

    def __init__(
        self, clock: Clock, bytes_per_second_max: Callable[[], float] = lambda: float("inf")
    ) -> None:
        self._now = clock.monotonic
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
        self._rest(_PAUSE_SECONDS)
        while not self.stopped and (left := due - self._now()) > 0:
            self._rest(min(left, _NAP_SECONDS_MAX))
        self._stretch = self._now()
        if due < self._stretch - 1:  # time that was not used is not saved up
            self._began, self._bytes = self._stretch, 0
