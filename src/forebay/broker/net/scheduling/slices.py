"""Turns of the event loop for work that is large by nature.

Such work is done in slices of a few milliseconds, one slice in each turn of the loop, whoever wants it: all
that is large shares one line, and what is small passes it. So a broker that is asked for a million things
answers everybody else as if it were asked for few.
Where cores are short there are pauses between slices (`broker/yielding/pauses.py`). What they took is charged
to users, who have to wait with their next request (`broker/yielding/core_shortage.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator
from typing import NamedTuple, TypeVar

from forebay.broker.yielding.pauses import Pauses

T = TypeVar("T")

SLICE_S = 0.002
"""How long a slice may take. It ends at the next step after that."""

_WANTED_S = 0.1
"""How long work may still wait when others wait for its room. A client that is answered soon asks again."""

NOBODY = ""
"""Work that nobody is charged for."""


class NotWanted(Exception):
    """Nobody waits for the work any more."""


class _Turn(NamedTuple):
    begun: asyncio.Future[None]
    user: str


class Slices:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread_cpu: Callable[[], float],
        charge: Callable[[str, float], float],
    ) -> None:
        """`thread_cpu`: the seconds of CPU that this thread has used. `charge` is called with a user, and how
        many of them a slice took; it returns how long all large work is to rest."""
        self._loop = loop
        self._thread_cpu = thread_cpu
        self._pauses = Pauses(loop, thread_cpu)
        self._charge = charge
        self._waiting: deque[_Turn] = deque()
        self._is_scheduled = False
        self._began_s = self._began_cpu_s = 0.0

    async def next(self, user: str = NOBODY) -> None:
        """Go to the end of the line, and wait for a turn."""
        turn = _Turn(self._loop.create_future(), user)
        self._waiting.append(turn)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._give)
        await turn.begun
        self._began_s, self._began_cpu_s = self._loop.time(), self._thread_cpu()
        self._pauses.begin()

    @property
    def is_over(self) -> bool:
        """True if the task that has the turn has used it up."""
        return self._loop.time() - self._began_s >= SLICE_S

    async def run(
        self, steps: Generator[None, None, T], is_wanted: Callable[[], bool], user: str = NOBODY
    ) -> T:
        """Do the steps, as many in each turn as there is time for; what they return. Raises NotWanted."""
        await self.next(user)
        while is_wanted():
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self.is_over:
                await self.next(user)
        raise NotWanted

    def _give(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if turn.begun.done():  # its task was cancelled
                continue
            turn.begun.set_result(None)
            self._pauses.begin()  # in case it is cancelled before it has its turn
            self._began_cpu_s = self._thread_cpu()
            self._loop.call_soon(self._taken, turn.user)  # behind the task, which is woken first
            return
        self._is_scheduled = False

    def _taken(self, user: str) -> None:
        """A task has had its slice."""
        rest_s = self._charge(user, self._thread_cpu() - self._began_cpu_s) if user else 0.0
        pause_s = max(self._pauses.due_s(), rest_s)
        if pause_s:
            self._loop.call_later(pause_s, self._give)
        else:
            self._give()


class Room:
    """Bounds how much large work is in memory at a time; half of it at most is one client's.

    Work that waits for something, and need not, ends its wait when others wait for its room.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._taken: dict[Hashable, int] = {}
        self._total = 0
        self._waiting: dict[asyncio.Future[None], Place] = {}
        self._idle: dict[Place, Callable[[], None]] = {}
        """Work that waits, with what ends its wait."""

    async def take(self, who: Hashable, amount: int, most: int) -> Place:
        """Wait until there is room for so much, of at most twice `most` in all and `most` for each."""
        assert amount > 0
        granted, place = self._loop.create_future(), Place(self, who, min(amount, most), most)
        self._waiting[granted] = place
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if self._waiting.pop(granted, None) is None:
                place.give_back()
            raise
        return place

    def give(self, place: Place) -> None:
        who = place.who
        self._total -= place.amount
        self._taken[who] -= place.amount
        if not self._taken[who]:
            del self._taken[who]
        self._grant()

    def idle(self, place: Place, end: Callable[[], None] | None) -> None:
        """Note what ends the wait of work; None when it waits no more."""
        if end is None:
            self._idle.pop(place, None)
        else:
            self._idle[place] = end
            self._grant()

    def _grant(self) -> None:
        for granted, place in list(self._waiting.items()):
            who, amount, most = place.who, place.amount, place.most
            if self._total + amount > 2 * most:
                self._end_waits(None)
                return  # nobody passes one that needs more
            own = self._taken.get(who, 0)
            if own and own + amount > most:
                self._end_waits(who)
                continue
            del self._waiting[granted]
            self._total += amount
            self._taken[who] = own + amount
            granted.set_result(None)

    def _end_waits(self, who: Hashable | None) -> None:
        """End the waits of one client's work, or of all."""
        for place in [place for place in self._idle if who is None or place.who == who]:
            self._loop.call_later(_WANTED_S, self._idle.pop(place))


class Place:
    """Room for so much, until it is given back."""

    __slots__ = ("_is_taken", "_room", "amount", "most", "who")

    def __init__(self, room: Room, who: Hashable, amount: int, most: int) -> None:
        self._room = room
        self.who = who
        self.amount = amount
        self.most = most
        self._is_taken = True

    def give_back(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._room.give(self)

    @contextlib.contextmanager
    def waiting(self, end: Callable[[], None] | None) -> Iterator[None]:
        """While work waits. `end` ends its wait; without that, others have its room from now on."""
        if end is None:
            self.give_back()
            yield
            return
        self._room.idle(self, end)
        try:
            yield
        finally:
            self._room.idle(self, None)
