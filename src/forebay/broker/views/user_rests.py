"""Users whose views took CPU while the event loop waited for a core.

The threads of views take as much of the machine as its event loops do, and the system cannot tell which of
them is urgent. So while the loop has no core for a part of the time, a user whose views were filtered rests
for several times as long as that took, the longer the larger that part is. Meanwhile the threads are free for
other users.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_TIMES = 10
"""Where the loop waits for half of the time: how many times as long as it worked a user rests."""
_REST_S_MIN, _REST_S_MAX = 0.01, 1.0
_WINDOW_S = 0.02
"""A shorter time says little about how long the loop waits for cores."""
_PART_MAX = 0.9


class CoreShortage:
    """The part of the time in which the loop was ready to run and had no core, of late."""

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
            waited_s = self._core_wait()
            self._part = min(max(waited_s - self._waited_s, 0.0) / passed_s, _PART_MAX)
            self._since_s, self._waited_s = now_s, waited_s
        return self._part


class UserRests(Generic[T]):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shortage: CoreShortage,
        go_on: Callable[[list[T]], None],
    ) -> None:
        """`go_on` is called with what a user has brought, when its rest is over."""
        self._loop = loop
        self._shortage = shortage
        self._go_on = go_on
        self._until_s: dict[str, float] = {}
        self._waiting: dict[str, list[T]] = {}

    def keeps(self, user: str, work: T) -> bool:
        """Keep the work until the end of its user's rest; False if the user does not rest."""
        if user not in self._until_s:
            return False
        self._waiting.setdefault(user, []).append(work)
        return True

    def worked(self, user: str, cpu_s: float) -> None:
        """Note that a thread has worked for a user for this time."""
        part = self._shortage.part
        rest_s = min(cpu_s * _TIMES * part / (1 - part), _REST_S_MAX)
        if rest_s < _REST_S_MIN:
            return
        now_s = self._loop.time()
        if user not in self._until_s:
            self._loop.call_later(rest_s, self._end, user)
        self._until_s[user] = max(self._until_s.get(user, 0.0), now_s) + rest_s

    def _end(self, user: str) -> None:
        left_s = self._until_s.get(user, 0.0) - self._loop.time()
        if left_s > 0:
            self._loop.call_later(left_s, self._end, user)
            return
        self._until_s.pop(user, None)
        self._go_on(self._waiting.pop(user, []))

    def stop(self) -> list[T]:
        """Nobody rests any longer: all that waits."""
        left = [work for waiting in self._waiting.values() for work in waiting]
        self._waiting.clear()
        self._until_s.clear()
        return left
