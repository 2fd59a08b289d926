"""The limits of each client, with the buckets that clients are counted in.

Clients choose their ids, so memory is bounded: a full bucket is equivalent to a new one and is dropped. If
too many are in use, the fullest tenth is dropped: nobody gets rid of a debt by using other ids, and room has
to be made seldom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from forebay.core.quotas.entities import QuotaEntity
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.precedence import Quota, Quotas
from forebay.core.quotas.token_bucket import TokenBucket
from forebay.lazy import dataclass

BUCKETS_MAX = 20_000
SWEEP_S = 60.0
_NAME_CHARS_KEPT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """How much may be used at once, and how long a client is made to wait, in seconds."""

    burst_s: float = 10.0
    mutation_burst_s: float = 11.0
    """For partitions created and deleted."""
    mutation_debt_s_max: float = 3600.0
    """One request may create thousands of partitions. The debt is remembered for longer than a client is made
    to wait: further requests are refused, or wait again."""
    debt_s_max: float = 30.0
    request_debt_s_max: float = 3600.0
    """For the time that requests take. One may take a hundred times what a client may use in a second, and
    the client has many connections. No client is made to wait that long at a time: the next requests wait
    before they are handled."""


class ClientLimits(NamedTuple):
    """The limits of one client; None: no limit."""

    produce: TokenBucket | None
    fetch: TokenBucket | None
    request: TokenBucket | None
    mutation: TokenBucket | None


_UNLIMITED = ClientLimits(None, None, None, None)


class Limiter:
    def __init__(self, bursts: Bursts) -> None:
        self._bursts = bursts
        self._quotas = Quotas()
        self._clients: dict[tuple[str, str], ClientLimits | None] = {}
        self._buckets: dict[tuple[str, str | None, str | None], TokenBucket] = {}
        self._swept_at = 0.0

    def replace(self, stored: Iterable[tuple[QuotaEntity, Mapping[str, float]]]) -> None:
        """Replace the quotas. Usage of a quota that stays the same continues to count."""
        self._quotas = Quotas(stored)
        self._clients.clear()
        if not self.limits_clients and not self.limits_connections:
            self._buckets.clear()

    @property
    def limits_clients(self) -> bool:
        return self._quotas.limits_clients

    @property
    def limits_connections(self) -> bool:
        return self._quotas.limits_connections

    @property
    def bucket_count(self) -> int:
        return len(self._buckets)

    def of_client(self, user: str, client_id: str, now: float) -> ClientLimits | None:
        """The limits of a client; None if there are none. One look-up for a client that was seen before."""
        key = (user, client_id)
        try:
            return self._clients[key]
        except KeyError:
            return self._look_up(key, now)

    def of_ip(self, ip: str, now: float) -> TokenBucket | None:
        self._sweep(now)
        return self._bucket(self._quotas.find_of_ip(ip), now)

    def _look_up(self, key: tuple[str, str], now: float) -> ClientLimits | None:
        self._sweep(now)
        keys = (QuotaKey.PRODUCE, QuotaKey.FETCH, QuotaKey.REQUEST, QuotaKey.MUTATION)
        found = ClientLimits(*(self._bucket(self._quotas.find(each, *key), now) for each in keys))
        limits = None if found == _UNLIMITED else found
        if len(key[0]) + len(key[1]) <= _NAME_CHARS_KEPT:
            if len(self._clients) >= BUCKETS_MAX:
                self._clients.clear()
            self._clients[key] = limits
        return limits

    def _bucket(self, quota: Quota | None, now: float) -> TokenBucket | None:
        if quota is None:
            return None
        bucket = self._buckets.get(quota.shared_by)
        if bucket is None or bucket.bound != quota.bound:
            bucket = self._buckets[quota.shared_by] = self._new_bucket(quota, now)
        return bucket

    def _new_bucket(self, quota: Quota, now: float) -> TokenBucket:
        burst_s, debt_s_max = self._limits_of(quota.shared_by[0])
        return TokenBucket(quota.bound, now, burst_s=burst_s, debt_s_max=debt_s_max)

    def _limits_of(self, key: str) -> tuple[float, float]:
        bursts = self._bursts
        if key == QuotaKey.MUTATION:
            return bursts.mutation_burst_s, bursts.mutation_debt_s_max
        return bursts.burst_s, bursts.request_debt_s_max if key == QuotaKey.REQUEST else bursts.debt_s_max

    def _sweep(self, now: float) -> None:
        """Drop the buckets of idle clients when a new client comes. Then there is room for all buckets of
        that client, so that none of them is dropped while the others are created."""
        if len(self._buckets) + len(ClientLimits._fields) > BUCKETS_MAX:
            self._make_room(now)
        elif now - self._swept_at >= SWEEP_S:
            self._drop_idle(now)

    def _drop_idle(self, now: float) -> None:
        self._swept_at = now
        self._clients.clear()  # some may hold a bucket that is dropped
        for key in [key for key, bucket in self._buckets.items() if bucket.is_full(now)]:
            del self._buckets[key]

    def _make_room(self, now: float) -> None:
        self._drop_idle(now)
        excess = len(self._buckets) - BUCKETS_MAX * 9 // 10
        if excess > 0:
            levels = {key: bucket.level(now) for key, bucket in self._buckets.items()}
            for key in sorted(levels, key=levels.__getitem__, reverse=True)[:excess]:
                del self._buckets[key]
