"""Invariants of early fencing: a broker ends the registration of another before its lease ends.

A verdict needs two refusals, later than the registration that it ends; and there are no more verdicts on a
broker in a minute than its settings allow. A lease is ended by another broker only after its registration is
gone. And a fenced broker trusts its lease no longer than the lease would have lasted, unless the broker that
fenced it died at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from forebay.coordination.keys import Keys
from forebay.coordination.store import Delete, Put
from forebay.sim.world.virtual_time import World

_REFUSALS = 2
_RECENT_S = 15.0
"""The maximum age of the refusals: a slow store takes seconds for a transaction."""
_MINUTE_S = 60.0
_LEASE_S = 8.0
_LATE_S = 4.0
"""How late the end of a lease may be: the store does not answer every request for it."""

_JUDGE_S = 5.0
"""How long a broker has to live to end the lease, too."""


class Brokers(Protocol):
    """The brokers of the story, by host."""

    def sure_epoch(self, host: str) -> int | None:
        """The epoch of a broker that is sure of its lease; None if it is not."""

    def life(self, host: str) -> int | None:
        """The number of its process; None if it has none."""


class Verdicts:
    def __init__(
        self,
        keys: Keys,
        refusals: Mapping[tuple[str, str], Sequence[float]],
        brokers: Brokers,
        world: World,
        *,
        per_minute_max: int,
    ) -> None:
        """`refusals`: when one host was refused by another."""
        self._hosts = {keys.broker(number): f"node{number}" for number in range(1, 100)}
        self._refusals = refusals
        self._brokers = brokers
        self._world = world
        self._fail = world.fail
        self._per_minute_max = per_minute_max
        self._registered_at: dict[str, float] = {}
        self._passed: dict[str, list[float]] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self._passed.values()))

    def written(self, host: str, puts: Sequence[Put], deletes: Sequence[Delete]) -> None:
        """Note that a host has written this to the store."""
        for put in puts:
            if put.key in self._hosts:
                self._registered_at[self._hosts[put.key]] = self._world.now
        for delete in deletes:
            victim = self._hosts.get(delete.key)
            if victim is not None and victim != host:
                self._check(host, victim)
                self._expect_to_step_down(host, victim)
                self._passed.setdefault(victim, []).append(self._world.now)

    def _expect_to_step_down(self, judge: str, victim: str) -> None:
        brokers, world = self._brokers, self._world
        epoch, life = brokers.sure_epoch(victim), brokers.life(judge)

        def check() -> None:
            if brokers.sure_epoch(victim) == epoch:
                self._fail(f"{victim} is sure of its lease long after {judge} has ended its registration")

        def check_later() -> None:
            if brokers.life(judge) == life:
                world.after(_LEASE_S + _LATE_S - _JUDGE_S, check)

        if epoch is not None and life is not None:  # a request of a dead broker may be carried out
            world.after(_JUDGE_S, check_later)

    def revoked(self, host: str, under: Sequence[str]) -> None:
        """Note that a host has ended a lease of another, which these keys were under."""
        for key in under:
            if key in self._hosts:
                self._fail(f"{host} ended the lease of {self._hosts[key]}, which was registered")

    def _check(self, host: str, victim: str) -> None:
        now, registered_at = self._world.now, self._registered_at.get(victim, 0.0)
        since = max(registered_at, now - _RECENT_S)
        refusals = [when for when in self._refusals.get((host, victim), ()) if when >= since]
        if len(refusals) < _REFUSALS:
            self._fail(
                f"{host} ended the registration of {victim} after {len(refusals)} refusals since {since:.3f}"
            )
        recent = [when for when in self._passed.get(victim, ()) if when > now - _MINUTE_S]
        if len(recent) >= self._per_minute_max:
            self._fail(f"{host} ended the registration of {victim}, as others did at {recent}")
