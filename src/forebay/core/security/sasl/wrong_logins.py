"""Wrong logins: who has to wait before the next one is checked, and for how long.

Two things are counted for each address (IPv6: each /64): wrong logins of one user, and those of all users. A
few of them are free. Each further one doubles the wait, up to a bound. A login that comes too early is
refused unchecked, and does not count. Counts shrink with time, while nobody has to wait: by the number of
free ones in `_FORGETTING_WAITS` times the longest wait.

A user is never made to wait for what happened at another address, so a stranger cannot lock a user out. The
count of an address as a whole does not hold up users that have logged in from there before: they may share it
with an attacker (address translation). Users that do not exist are treated the same.

The counts take a bounded amount of memory; those that were raised the longest time ago are dropped first.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import lru_cache
from ipaddress import ip_address, ip_network
from typing import NamedTuple, TypeVar

from forebay.core.security.networks import network_of

K = TypeVar("K")

_FORGETTING_WAITS = 5
Pair = tuple[str, int]
"""A network, and the hash of a user's name: strangers may send names of any length."""


class LoginLimits(NamedTuple):
    failures_max: int
    """The number of wrong logins of one user from one address that are free."""
    address_failures_max: int
    """The same for all users from one address."""
    wait_ms: int
    """The wait after the first wrong login that is not free."""
    wait_ms_max: int
    """0: nobody has to wait."""
    exempt: tuple[str, ...]
    """Addresses and ranges where nobody has to wait."""
    remembered_max: int
    """The number of counts that are kept, for addresses and for users."""


class _Count:
    __slots__ = ("failures", "until_ms")

    def __init__(self, now_ms: int) -> None:
        self.failures = 0.0
        self.until_ms = now_ms
        """The end of the wait; without one, the last wrong login."""

    def add(self, free: int, limits: LoginLimits, now_ms: int) -> None:
        quiet_ms = max(now_ms - self.until_ms, 0)
        shrunk = quiet_ms * free / (_FORGETTING_WAITS * limits.wait_ms_max)
        self.failures = max(self.failures - shrunk, 0.0) + 1
        self.until_ms = max(self.until_ms, now_ms)
        over = math.ceil(self.failures - free)
        if over > 0:
            doublings_max = max(math.ceil(math.log2(limits.wait_ms_max / limits.wait_ms)), 0)
            # A larger count would only take longer to shrink.
            self.failures = min(self.failures, free + doublings_max + 1.0)
            wait_ms = min(limits.wait_ms << min(over - 1, doublings_max), limits.wait_ms_max)
            self.until_ms = now_ms + wait_ms


class WrongLogins:
    def __init__(self) -> None:
        self._addresses: OrderedDict[str, _Count] = OrderedDict()
        self._pairs: OrderedDict[Pair, _Count] = OrderedDict()
        self._known: OrderedDict[Pair, None] = OrderedDict()
        """Users that have logged in, by network."""

    def __len__(self) -> int:
        """The number of remembered entries."""
        return len(self._addresses) + len(self._pairs) + len(self._known)

    def wait_ms(
        self, user: str, host: str, limits: LoginLimits, now_ms: int, *, is_known: bool = False
    ) -> int:
        """How long this user has to wait at this address; 0 if not. `is_known`: it does not wait for other
        users there, even if it has not logged in before."""
        if not limits.wait_ms_max or _is_exempt(host, limits.exempt):
            return 0
        network, pair = _keys(user, host)
        own = self._pairs.get(pair)
        all_users = None if is_known or pair in self._known else self._addresses.get(network)
        return max(0 if count is None else count.until_ms - now_ms for count in (own, all_users, None))

    def failed(self, user: str, host: str, limits: LoginLimits, now_ms: int) -> None:
        if not limits.wait_ms_max or _is_exempt(host, limits.exempt):
            return
        network, pair = _keys(user, host)
        address = _latest(self._addresses, network, limits, now_ms)
        address.add(limits.address_failures_max, limits, now_ms)
        _latest(self._pairs, pair, limits, now_ms).add(limits.failures_max, limits, now_ms)

    def succeeded(self, user: str, host: str, limits: LoginLimits) -> None:
        """Forget earlier failures, except the count of the address: otherwise a client with one user's
        password could guess those of others without end."""
        _, pair = _keys(user, host)
        self._pairs.pop(pair, None)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > limits.remembered_max:
            self._known.popitem(last=False)


def _keys(user: str, host: str) -> tuple[str, Pair]:
    network = network_of(host)
    return network, (network, hash(user))


def _latest(counts: OrderedDict[K, _Count], key: K, limits: LoginLimits, now_ms: int) -> _Count:
    """The count of a key, which is now the last to be dropped."""
    count = counts.get(key)
    if count is None:
        count = counts[key] = _Count(now_ms)
        while len(counts) > limits.remembered_max:
            counts.popitem(last=False)
    counts.move_to_end(key)
    return count


@lru_cache(maxsize=4096)
def _is_exempt(host: str, exempt: tuple[str, ...]) -> bool:
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:  # not by IP
        return True
    return any(address in ip_network(each) for each in exempt)
