"""Whose requests are handled when: work is metered in turns of the event loop.

A connection is served when something comes, for one *slice* of time at most; requests that are left are
handled later. What it took beyond its slice is its *debt*, which is forgotten with time. So almost every
connection has none, and does not wait.

A connection in debt waits in a line. However many wait there, they have the time of a few slices together
in each turn of the loop, so others are served in between. Within the line each *sender* has its turn after
the others: a hundred connections of one user get as much as one connection of another. When connections
without debt have taken as long in one turn of the loop, because many became costly at once, those that come
after them wait in the line, too.

Clients that have not logged in wait in a line of their own, with less time, and a bound on the number of
requests, because part of their work is done later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from forebay.config import SocketConfig

_SLICES_IN_LINE = 2
"""The time that all connections in debt have together, in each turn of the loop."""
_SLICE_S_MIN = 0.0005
_STRANGERS_PER_TURN = 16
"""Connections that have not logged in and are served in one turn of the loop."""
_DEBT_SLICES_MAX = 50
_FORGOTTEN_PART = 0.05
"""The debt that is forgotten in a second: a connection may take this part of the time without waiting."""


class Waiting(Protocol):
    """What waits in a line: `Connection`."""

    @property
    def sender(self) -> str:
        """Whose it is: a user, or an address where nobody has to log in."""

    def take_turn(self, slice_s: float) -> None:
        """Handle requests for this time."""


class Line:
    def __init__(self, loop: asyncio.AbstractEventLoop, budget_s: float, served_max: int) -> None:
        """`budget_s`: the time for all who wait, in each turn of the loop, in which `served_max` of them are
        served at most."""
        self._loop = loop
        self._budget_s = budget_s
        self._served_max = served_max
        self._queues: dict[str, deque[Waiting]] = {}
        """By sender, the next one first."""
        self._is_due = False

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, waiting: Waiting) -> None:
        self._queues.setdefault(waiting.sender, deque()).append(waiting)
        self._serve_soon()

    def _serve_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_due = False
        now = self._loop.time
        end, served = now() + self._budget_s, 0
        while self._queues and served < self._served_max:
            slice_s = max(self._budget_s / len(self._queues), _SLICE_S_MIN)
            self._next().take_turn(slice_s)
            served += 1
            if now() >= end:
                break
        if self._queues:
            self._serve_soon()

    def _next(self) -> Waiting:
        sender, queue = next(iter(self._queues.items()))
        del self._queues[sender]
        waiting = queue.popleft()
        if queue:
            self._queues[sender] = queue  # behind the other senders
        return waiting


class Turns:
    """The lines of all connections of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, config: SocketConfig) -> None:
        self._loop = loop
        self.slice_s = config.turn_ms / 1000
        self._budget_s = self.slice_s * _SLICES_IN_LINE
        self.indebted = Line(loop, self._budget_s, served_max=1_000)
        self.strangers = Line(loop, config.strangers_turn_ms / 1000, served_max=_STRANGERS_PER_TURN)
        self._costly_s = 0.0
        """What connections without debt have taken beyond their slices, in this turn of the loop."""
        self.crowded = False
        """Whether that is too much, so that all others wait in line until the next turn of the loop."""

    def debt_s(self, before_s: float, elapsed_s: float, spent_s: float) -> float:
        """The debt of a connection that had one before, `elapsed_s` ago, and has had a turn since."""
        left = max(before_s - elapsed_s * _FORGOTTEN_PART, 0.0)
        return min(left + max(spent_s - self.slice_s, 0.0), self.slice_s * _DEBT_SLICES_MAX)

    def note_costly(self, beyond_s: float) -> None:
        """A connection that had no debt took so much beyond its slice."""
        if not self._costly_s:
            self._loop.call_soon(self._begin)
        self._costly_s += beyond_s
        self.crowded = self._costly_s > self._budget_s

    def _begin(self) -> None:
        self._costly_s = 0.0
        self.crowded = False
