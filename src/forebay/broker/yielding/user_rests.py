"""Users who took CPU while the event loop waited for a core.

Threads that filter views take as much of the machine as all else that brokers do, and the system cannot tell
which of it is urgent. So while the loop has no core for a part of the time, a user who was worked for rests
for several times as long as that took, the longer the larger that part is. Other users have their turns
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from forebay.broker.yielding.core_shortage import RestDebts

T = TypeVar("T")


class UserRests(Generic[T]):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, debts: RestDebts, go_on: Callable[[list[T]], None]
    ) -> None:
        """`go_on` is called with what a user has brought, when its rest is over."""
        self._loop = loop
        self._debts = debts
        self._go_on = go_on
        self._waiting: dict[str, list[T]] = {}

    def keeps(self, user: str, work: T) -> bool:
        """Keep the work until the end of its user's rest; False if the user does not rest."""
        left_s = self._debts.left_s(user)
        if not left_s:
            return False
        waiting = self._waiting.setdefault(user, [])
        waiting.append(work)
        if len(waiting) == 1:
            self._loop.call_later(left_s, self._wake, user)
        return True

    def worked(self, user: str, cpu_s: float) -> None:
        """Note that a user was worked for, for this time."""
        self._debts.worked(user, cpu_s)

    def _wake(self, user: str) -> None:
        if user not in self._waiting:
            return  # nobody rests any longer
        left_s = self._debts.left_s(user)
        if left_s:
            self._loop.call_later(left_s, self._wake, user)
        else:
            self._go_on(self._waiting.pop(user))

    def stop(self) -> list[T]:
        """Nobody rests any longer: all that waits."""
        left = [work for waiting in self._waiting.values() for work in waiting]
        self._waiting.clear()
        self._debts.clear()
        return left
