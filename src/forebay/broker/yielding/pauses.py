"""Pauses of the event loop between pieces of work of its users, where cores are short.

After a piece in which it had to wait for a core, or for the interpreter, it leaves the rest for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_WAITED_TIMES = 4
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.0005, 0.05


class Pauses:
    """Of one kind of work: `begin` before each piece, `due_s` behind it."""

    __slots__ = ("_began_cpu_s", "_began_s", "_now", "_thread_cpu")

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_cpu: Callable[[], float]) -> None:
        """`thread_cpu`: the seconds of CPU that this thread has used."""
        self._now = loop.time
        self._thread_cpu = thread_cpu
        self._began_s = self._began_cpu_s = 0.0

    def begin(self) -> None:
        self._began_s, self._began_cpu_s = self._now(), self._thread_cpu()

    def due_s(self) -> float:
        """How long to pause: some times as long as the piece has waited; 0 if that was next to nothing."""
        waited_s = self._now() - self._began_s - (self._thread_cpu() - self._began_cpu_s)
        pause_s = min(waited_s * _WAITED_TIMES, _PAUSE_S_MAX)
        return pause_s if pause_s > _PAUSE_S_MIN else 0.0


class PausedWork:
    """Work that is done a piece at a time, each in a turn of the loop, until nothing is left."""

    __slots__ = ("_do_some", "_is_due", "_loop", "_pauses")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread_cpu: Callable[[], float],
        do_some: Callable[[], bool],
    ) -> None:
        """`do_some` does a piece, and tells whether something is left."""
        self._loop = loop
        self._pauses = Pauses(loop, thread_cpu)
        self._do_some = do_some
        self._is_due = False

    def begin(self) -> None:
        """There is something to do."""
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._pauses.begin()
        is_left = True  # if the piece fails
        try:
            is_left = self._do_some()
        finally:
            pause_s = self._pauses.due_s()
            if pause_s:
                self._loop.call_later(pause_s, self._go_on)
            elif is_left:
                self._loop.call_soon(self._go_on)
            else:
                self._is_due = False
