"""What must hold of verdicts: brokers that end the registration of another one before its lease ends.

A verdict needs two refusals, later than the registration that it ends; and there are no more verdicts on a
broker in a minute than its settings say. A lease is ended by another broker only after the registration
under it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from forebay.coordination.keys import Keys
from forebay.coordination.store import Delete, Put

_REFUSALS = 2
_RECENT_S = 15.0
"""How old the refusals may be: a store that is slow takes seconds for a transaction."""
_MINUTE_S = 60.0


class Verdicts:
    def __init__(
        self,
        keys: Keys,
        refusals: Mapping[tuple[str, str], Sequence[float]],
        now: Callable[[], float],
        fail: Callable[[str], None],
        *,
        per_minute_max: int,
    ) -> None:
        """`refusals`: when one host was refused by another."""
        self._hosts = {keys.broker(number): f"node{number}" for number in range(1, 100)}
        self._refusals = refusals
        self._now = now
        self._fail = fail
        self._per_minute_max = per_minute_max
        self._registered_at: dict[str, float] = {}
        self._passed: dict[str, list[float]] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self._passed.values()))

    def written(self, host: str, puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
        """A host has written this to the store."""
        for put in puts:
            if put.key in self._hosts:
                self._registered_at[self._hosts[put.key]] = self._now()
        for delete in deletes:
            victim = self._hosts.get(delete.key)
            if victim is not None and victim != host:
                self._check(host, victim)
                self._passed.setdefault(victim, []).append(self._now())

    def revoked(self, host: str, under: Sequence[str]) -> None:
        """A host has ended a lease of another, which these keys were under."""
        for key in under:
            if key in self._hosts:
                self._fail(f"{host} ended the lease of {self._hosts[key]}, which was registered")

    def _check(self, host: str, victim: str) -> None:
        now, registered_at = self._now(), self._registered_at.get(victim, 0.0)
        since = max(registered_at, now - _RECENT_S)
        refusals = [when for when in self._refusals.get((host, victim), ()) if when >= since]
        if len(refusals) < _REFUSALS:
            self._fail(
                f"{host} ended the registration of {victim} after {len(refusals)} refusals since {since:.3f}"
            )
        recent = [when for when in self._passed.get(victim, ()) if when > now - _MINUTE_S]
        if len(recent) >= self._per_minute_max:
            self._fail(f"{host} ended the registration of {victim}, as others did at {recent}")
