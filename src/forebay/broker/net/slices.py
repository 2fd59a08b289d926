"""Turns of the event loop for work that is large by nature.

Such work is done in slices of a few milliseconds, one slice in each turn of the loop, whoever wants it: all
that is large shares one line, and what is small passes it. So a broker that is asked for a million things
answers everybody else as if it were asked for few.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Hashable
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.002
"""How long a slice may take. It ends at the next step after that."""


class NotWanted(Exception):
    """Nobody waits for the work any more."""


class Slices:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self._began_s = 0.0

    async def next(self) -> None:
        """Go to the end of the line, and wait for a turn."""
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._give)
        await turn
        self._began_s = self._loop.time()

    @property
    def is_over(self) -> bool:
        """True if who has the turn has used it up."""
        return self._loop.time() - self._began_s >= SLICE_S

    async def run(self, steps: Generator[None, None, T], is_wanted: Callable[[], bool]) -> T:
        """Do the steps, as many in each turn as there is time for; what they return. Raises NotWanted."""
        await self.next()
        while is_wanted():
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.is_over:
                await self.next()
        raise NotWanted

    def _give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else its task was cancelled
                turn.set_result(None)
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            self._loop.call_soon(self._give)


class Room:
    """Bounds how much large work is in memory at a time; half of it at most is one client's."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._taken: dict[Hashable, int] = {}
        self._total = 0
        self._waiting: dict[asyncio.Future[None], tuple[Hashable, int, int]] = {}

    async def take(self, who: Hashable, amount: int, most: int) -> None:
        """Wait until there is room for so much, of at most twice `most` in all and `most` for each."""
        granted = self._loop.create_future()
        self._waiting[granted] = who, min(amount, most), most
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if self._waiting.pop(granted, None) is None:
                self.give(who, amount, most)
            raise

    def give(self, who: Hashable, amount: int, most: int) -> None:
        """There is room again for what was taken."""
        amount = min(amount, most)
        self._total -= amount
        self._taken[who] -= amount
        if not self._taken[who]:
            del self._taken[who]
        self._grant()

    def _grant(self) -> None:
        for granted, (who, amount, most) in list(self._waiting.items()):
            if self._total + amount > 2 * most:
                return  # nobody passes one that needs more
            own = self._taken.get(who, 0)
            if own and own + amount > most:
                continue
            del self._waiting[granted]
            self._total += amount
            self._taken[who] = own + amount
            granted.set_result(None)
