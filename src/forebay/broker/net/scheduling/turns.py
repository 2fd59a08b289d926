"""Whose requests are handled when: work is metered in turns of the event loop.

A connection is served when something comes, for one *slice* of time at most; requests that are left are
handled later. What it took beyond its slice is its *debt*, which is forgotten with time. So almost every
connection has none, and does not wait.

A connection in debt waits in a line. However many wait there, they have the time of a few slices together
in each turn of the loop, so others are served in between. Within the line each *sender* has its turn after
the others: a hundred connections of one user get as much as one connection of another. When connections
without debt have taken as long in one turn of the loop, because many became costly at once, those that come
after them wait in the line, too.

Where cores are short, a line pauses between its turns (`broker/yielding/pauses.py`), and time in which others
on the machine had the core is nobody's debt. A connection by which another broker replicates never waits in
line: producers wait for it.

Clients that have not logged in wait in a line of their own, with less time, and a bound on the number of
requests, because part of their work is done later. Where cores are short they have less still
(`broker/yielding/stranger_work.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from forebay.broker.yielding.pauses import PausedWork
from forebay.broker.yielding.stranger_work import MakeWork, StrangerWork
from forebay.config import SocketConfig
from forebay.core.security.sender_rotation import SenderRotation, StrangerRotation

_SLICES_IN_LINE = 2
"""The time that all connections in debt have together, in each turn of the loop."""
_SLICE_S_MIN = 0.0005
_STRANGERS_PER_TURN = 16
"""Connections that have not logged in and are served in one turn of the loop."""
_DEBT_SLICES_MAX = 50
_FORGOTTEN_PART = 0.05
"""The debt that is forgotten in a second: a connection may take this part of the time without waiting."""


class Waiting(Protocol):
    """An element of a line: `Connection`."""

    closed: bool

    @property
    def sender(self) -> str:
        """Whose it is: a user, or an address where nobody has to log in."""

    def take_turn(self, slice_s: float) -> None:
        """Handle requests for this time."""


class Line:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make_work: MakeWork,
        waiting: SenderRotation[Waiting] | StrangerRotation[Waiting],
        budget_s: float,
        served_max: int,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`budget_s`: the time for all who wait, in each turn of the loop, in which `served_max` of them are
        served at most. `is_over` ends a turn sooner."""
        self._loop = loop
        self._begin = make_work(self._serve)
        self._is_over = is_over
        self._budget_s = budget_s
        self._served_max = served_max
        self._waiting = waiting

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, waiting: Waiting) -> None:
        self._waiting.add(waiting.sender, waiting)
        self._begin()

    def _serve(self) -> bool:
        """Those that were closed meanwhile count for nothing: a flood of them would take the turns of others,
        and be kept in memory until then."""
        now = self._loop.time
        end, served = now() + self._budget_s, 0
        while self._waiting and served < self._served_max:
            slice_s = max(self._budget_s / self._waiting.senders, _SLICE_S_MIN)
            waiting = self._waiting.take()
            if not waiting.closed:
                waiting.take_turn(slice_s)
                served += 1
            if now() >= end or self._is_over():
                break
        return bool(self._waiting)


class Turns:
    """The lines of all connections of a broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread_cpu: Callable[[], float],
        strangers: StrangerWork,
        config: SocketConfig,
    ) -> None:
        """`thread_cpu`: the seconds of CPU that this thread has used."""
        self._loop = loop
        self._thread_cpu = thread_cpu
        self.slice_s = config.turn_ms / 1000
        self._budget_s = self.slice_s * _SLICES_IN_LINE
        self.indebted = Line(
            loop,
            lambda serve: PausedWork(loop, thread_cpu, serve).begin,
            SenderRotation(),
            self._budget_s,
            served_max=1_000,
        )
        self.strangers = Line(
            loop,
            strangers.kind,
            StrangerRotation(strangers.known),
            config.strangers_turn_ms / 1000,
            served_max=_STRANGERS_PER_TURN,
            is_over=lambda: strangers.piece_is_over,
        )
        self.mark_due_s = self._mark_cpu_s = 0.0
        self._costly_s = 0.0
        """The time that connections without debt have taken beyond their slices, in this turn of the loop."""
        self.crowded = False
        """True if that is too much, so that all others wait in line until the next turn of the loop."""

    def debt_s(self, before_s: float, elapsed_s: float, spent_s: float) -> float:
        """The debt of a connection that had one before, `elapsed_s` ago, and has had a turn since."""
        left = max(before_s - elapsed_s * _FORGOTTEN_PART, 0.0)
        return min(left + max(spent_s - self.slice_s, 0.0), self.slice_s * _DEBT_SLICES_MAX)

    def mark(self, now: float) -> None:
        """Note how much CPU this thread has used by now. Due when a connection is about to be served, and the
        last time was more than a slice ago."""
        self._mark_cpu_s = self._thread_cpu()
        self.mark_due_s = now + self.slice_s

    def spent_s(self, seconds: float) -> float:
        """The CPU time of a connection that has had its turn for this long. While others on this machine
        had the core, it used nothing: at most what this thread has used since the mark before its turn."""
        return min(seconds, self._thread_cpu() - self._mark_cpu_s) if seconds > self.slice_s else seconds

    def note_costly(self, beyond_s: float) -> None:
        """A connection that had no debt took so much beyond its slice."""
        if not self._costly_s:
            self._loop.call_soon(self._begin)
        self._costly_s += beyond_s
        self.crowded = self._costly_s > self._budget_s

    def _begin(self) -> None:
        self._costly_s = 0.0
        self.crowded = False
