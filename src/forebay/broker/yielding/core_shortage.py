"""How short cores are: the part of the time in which the event loop was ready to run and had none.

And how long users are to rest for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

_WINDOW_S = 0.02
"""A shorter time says little about how long the loop waits for cores."""
_PART_MAX = 0.9
_REST_S_MIN = 0.01


class CoreShortage:
    """That part, of late."""

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
            waited_s = max(self._core_wait(), self._waited_s)  # 0 where it could not be read
            self._part = min(max(waited_s - self._waited_s, 0.0) / passed_s, _PART_MAX)
            self._since_s, self._waited_s = now_s, waited_s
        return self._part

    def rest_s(self, cpu_s: float, times: float) -> float:
        """How long to rest after work that took this much CPU: so many `times` as long where the loop waits
        for half of the time, more where it waits for more, and not at all where it has its core."""
        part = self.part
        return cpu_s * times * part / (1 - part)


class RestRule(NamedTuple):
    times: float
    """How many times as long as it was worked for a user rests where the loop waits for half of the time."""
    rest_s_max: float
    credit_s: float = 0.0
    """After so long without a rest, a user need not take as much of one: a little work is done at once."""


class RestDebts:
    """How long users are to rest, since they took CPU while the loop waited for a core."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, shortage: CoreShortage, rule: Callable[[str], RestRule]
    ) -> None:
        self._loop = loop
        self._shortage = shortage
        self._rule = rule
        self._until_s: dict[str, float] = {}
        """When rests end. Kept until the user has all its credit again."""

    def left_s(self, user: str) -> float:
        """How long it still rests."""
        return max(self._until_s.get(user, 0.0) - self._loop.time(), 0.0)

    def worked(self, user: str, cpu_s: float) -> None:
        """Note that a user was worked for, for this time."""
        rule = self._rule(user)
        rest_s = min(self._shortage.rest_s(cpu_s, rule.times), rule.rest_s_max)
        if rest_s < _REST_S_MIN and user not in self._until_s:
            return
        now_s = self._loop.time()
        if user not in self._until_s:
            self._loop.call_later(rest_s, self._forget, user)
        began_s = max(self._until_s.get(user, 0.0), now_s - rule.credit_s)
        self._until_s[user] = min(began_s + rest_s, now_s + rule.rest_s_max)

    def _forget(self, user: str) -> None:
        left_s = self._until_s.get(user, 0.0) + self._rule(user).credit_s - self._loop.time()
        if left_s > 0:
            self._loop.call_later(left_s, self._forget, user)
        else:
            self._until_s.pop(user, None)

    def clear(self) -> None:
        """Nobody rests any longer."""
        self._until_s.clear()
