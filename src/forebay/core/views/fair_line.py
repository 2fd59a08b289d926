"""Decides whose work is next: users take turns, and so do the views of each.

The length of the work is unknown, and some takes a hundred times longer than other. So the time spent counts,
not the number of turns: the next turn goes to the user with the least time so far, and to that user's view
with the least. A user that comes back after a pause has no credit: it begins where the others are (start-time
fair queueing). So however much work one user brings, another waits only for the work under way and the turns
of users that had less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
K = TypeVar("K", str, bytes)

_REMEMBERED_MAX = 1_000
"""Users, and views of a user, whose time is remembered while they have nothing to do."""
_LEAST_S = 0.0001
"""The minimum that a turn counts, so that all get theirs even if no time passes."""


class Next(NamedTuple, Generic[T]):
    user: str
    view: bytes
    work: T


class _Shares(Generic[K]):
    """The time that was spent for each, counted from where the others were when it came."""

    def __init__(self) -> None:
        self._used_s: dict[K, float] = {}
        self._now_s = 0.0
        """The time used by the one that was next last."""

    def join(self, key: K) -> None:
        self._used_s[key] = max(self._used_s.get(key, 0.0), self._now_s)

    def first(self, waiting: Iterable[K]) -> K:
        """The one with the least time, and among equals the one that has waited longest."""
        key = min(waiting, key=self._used_s.__getitem__)
        self._now_s = max(self._now_s, self._used_s[key])
        return key

    def charge(self, key: K, seconds: float) -> None:
        self._used_s[key] = self._used_s.get(key, self._now_s) + seconds

    def forget(self, waiting: Iterable[K]) -> None:
        """Forget those that would begin anew anyway; if there are too many, all that do not wait."""
        kept = set(waiting)
        for with_debt in (True, False):
            if len(self._used_s) > _REMEMBERED_MAX:
                self._used_s = {
                    key: used_s
                    for key, used_s in self._used_s.items()
                    if key in kept or (with_debt and used_s > self._now_s)
                }


class FairLine(Generic[T]):
    def __init__(self) -> None:
        self._waiting: dict[str, dict[bytes, deque[T]]] = {}
        self._users: _Shares[str] = _Shares()
        self._views: dict[str, _Shares[bytes]] = {}

    def __len__(self) -> int:
        return sum(len(work) for views in self._waiting.values() for work in views.values())

    def add(self, user: str, view: bytes, work: T) -> None:
        if user not in self._waiting:
            self._users.join(user)
            self._waiting[user] = {}
        views = self._waiting[user]
        if view not in views:
            self._views.setdefault(user, _Shares()).join(view)
            views[view] = deque()
        views[view].append(work)

    def take(self) -> Next[T] | None:
        """The next work, whose time the caller reports; None if nothing waits."""
        if not self._waiting:
            return None
        user = self._users.first(self._waiting)
        views = self._waiting[user]
        view = self._views[user].first(views)
        work = views[view].popleft()
        if not views[view]:
            del views[view]
        if not views:
            del self._waiting[user]
        return Next(user, view, work)

    def charge(self, user: str, view: bytes, seconds: float) -> None:
        """Charge the expected time of a turn."""
        self._users.charge(user, max(seconds, _LEAST_S))
        self._users.forget(self._waiting)
        shares = self._views.get(user)
        if shares is not None:
            shares.charge(view, max(seconds, _LEAST_S))
            shares.forget(self._waiting.get(user, ()))
        self._forget_views()

    def correct(self, user: str, view: bytes, *, expected_s: float, used_s: float) -> None:
        """Correct the charge: a turn is over, and its time is known."""
        more_s = max(used_s, _LEAST_S) - max(expected_s, _LEAST_S)
        self._users.charge(user, more_s)
        if user in self._views:
            self._views[user].charge(view, more_s)

    def _forget_views(self) -> None:
        for gone in [each for each in self._views if len(self._views) > _REMEMBERED_MAX]:
            if gone not in self._waiting:
                del self._views[gone]
