"""Users who took CPU while the event loop waited for a core.

Threads that filter views, and slices of large requests, take as much of the machine as all else that brokers
do, and the system cannot tell which of it is urgent. So while the loop has no core for a part of the time, a
user who was worked for rests for several times as long as that took, the longer the larger that part is.
Other users have their turns meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from forebay.broker.yielding.core_shortage import CoreShortage

T = TypeVar("T")


_REST_S_MIN, _REST_S_MAX = 0.01, 4.0


class UserRests(Generic[T]):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shortage: CoreShortage,
        go_on: Callable[[list[T]], None],
        times: Callable[[str], float],
        *,
        credit_s: float = 0.0,
    ) -> None:
        """`go_on` is called with what a user has brought, when its rest is over. `times`: how many times as
        long as it was worked for a user rests where the loop waits for half of the time. `credit_s`: the
        rest that a user need not take who has had none for that time: a little work is done at once."""
        self._loop = loop
        self._shortage = shortage
        self._go_on = go_on
        self._times = times
        self._credit_s = credit_s
        self._until_s: dict[str, float] = {}
        """When rests end. Kept until the user has all its credit again."""
        self._waiting: dict[str, list[T]] = {}

    def keeps(self, user: str, work: T) -> bool:
        """Keep the work until the end of its user's rest; False if the user does not rest."""
        if self._until_s.get(user, 0.0) <= self._loop.time():
            return False
        waiting = self._waiting.setdefault(user, [])
        waiting.append(work)
        if len(waiting) == 1:
            self._wake_later(user)
        return True

    def worked(self, user: str, cpu_s: float) -> None:
        """Note that a user was worked for, for this time."""
        rest_s = min(self._shortage.rest_s(cpu_s, self._times(user)), _REST_S_MAX)
        if rest_s < _REST_S_MIN:
            return
        now_s = self._loop.time()
        if user not in self._until_s:
            self._loop.call_later(rest_s, self._forget, user)
        self._until_s[user] = max(self._until_s.get(user, 0.0), now_s - self._credit_s) + rest_s

    def _wake_later(self, user: str) -> None:
        self._loop.call_later(self._until_s[user] - self._loop.time(), self._wake, user)

    def _wake(self, user: str) -> None:
        if user not in self._waiting:
            return  # nobody rests any longer
        if self._until_s.get(user, 0.0) > self._loop.time():
            self._wake_later(user)
        else:
            self._go_on(self._waiting.pop(user))

    def _forget(self, user: str) -> None:
        left_s = self._until_s.get(user, 0.0) + self._credit_s - self._loop.time()
        if left_s > 0:
            self._loop.call_later(left_s, self._forget, user)
        else:
            self._until_s.pop(user, None)

    def stop(self) -> list[T]:
        """Nobody rests any longer: all that waits."""
        left = [work for waiting in self._waiting.values() for work in waiting]
        self._waiting.clear()
        self._until_s.clear()
        return left
