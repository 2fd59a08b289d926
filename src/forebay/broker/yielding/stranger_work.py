"""Work for clients that have not logged in: connections are accepted, TLS handshakes made, logins answered.

Anybody can ask for it, at little cost. So all kinds of it share one line, a piece of each in a turn of the
loop. Where cores are short only one piece is done at a time, and after it strangers rest, the longer the more
CPU it took and the more the loop waits. (Pauses of each kind for itself, which they had before, did little:
the other kinds went on meanwhile.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.core.security.sender_rotation import KnownNetworks

DoSome: TypeAlias = Callable[[], bool]
"""Does a piece of work, and tells whether something is left."""
MakeWork: TypeAlias = Callable[[DoSome], Callable[[], None]]
"""Makes a kind of work: a function that is called when there is something to do."""

_TIMES, _TIMES_OPEN = 80, 4
"""Where the loop waits for half of the time: how many times as long as a piece took strangers rest."""
_REST_S_MIN, _REST_S_MAX = 0.0005, 0.15
_SHORT_PART = 0.05
_PIECE_S = 0.0005
"""How long a piece takes where cores are short; it ends at the next step after that."""


class StrangerWork:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread_cpu: Callable[[], float],
        shortage: CoreShortage,
        *,
        is_open: bool,
    ) -> None:
        """`thread_cpu`: the seconds of CPU that the loop's thread has used. `is_open`: strangers may do
        everything."""
        self._loop = loop
        self._thread_cpu = thread_cpu
        self._shortage = shortage
        self._times = _TIMES_OPEN if is_open else _TIMES
        self.known = KnownNetworks()
        """Networks whose clients have most turns of each kind of work."""
        self._waiting: deque[_Kind] = deque()
        self._is_scheduled = False
        self._rest_ends_s = self._piece_ends_s = 0.0

    def kind(self, do_some: DoSome) -> Callable[[], None]:
        """A kind of work, as a `MakeWork`."""
        return _Kind(self, do_some).begin

    @property
    def piece_is_over(self) -> bool:
        """True if the rest of the piece under way is to be left for later, since cores are short."""
        return self._loop.time() >= self._piece_ends_s and self._shortage.part > _SHORT_PART

    def add(self, kind: _Kind) -> None:
        self._waiting.append(kind)
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        rest_s = self._rest_ends_s - self._loop.time()
        if rest_s > _REST_S_MIN:
            self._loop.call_later(rest_s, self._go_on)
        else:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        try:
            for _ in range(len(self._waiting)):
                if self._rests_after(self._waiting.popleft()):
                    break
        finally:  # also if a piece has failed
            self._is_scheduled = False
            if self._waiting:
                self._schedule()

    def _rests_after(self, kind: _Kind) -> bool:
        """Do a piece. True if all others have to wait then."""
        began_s, began_cpu_s = self._loop.time(), self._thread_cpu()
        self._piece_ends_s = began_s + _PIECE_S
        kind.is_waiting = False
        is_left = True  # if the piece fails
        try:
            is_left = kind.do_some()
        finally:
            if is_left:
                kind.begin()
        if not self._waiting:
            return False  # nobody would rest but those who come alone
        rest_s = min(self._shortage.rest_s(self._thread_cpu() - began_cpu_s, self._times), _REST_S_MAX)
        self._rest_ends_s = self._loop.time() + rest_s
        return rest_s > _REST_S_MIN


class _Kind:
    __slots__ = ("_work", "do_some", "is_waiting")

    def __init__(self, work: StrangerWork, do_some: DoSome) -> None:
        self._work = work
        self.do_some = do_some
        self.is_waiting = False

    def begin(self) -> None:
        """There is something to do."""
        if not self.is_waiting:
            self.is_waiting = True
            self._work.add(self)
