"""Unfinished logins, and which one to drop when there are too many.

The sender with the most unfinished logins loses its oldest. So one address, or one IPv6 network, that opens
connections and says nothing takes no login from others.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from forebay.core.security.networks import network_of

L = TypeVar("L", bound=Hashable)


class UnfinishedLogins(Generic[L]):
    def __init__(self) -> None:
        self._by_network: dict[str, dict[L, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, address: str, login: L) -> None:
        logins = self._by_network.setdefault(network_of(address), {})
        self._count += login not in logins
        logins[login] = None

    def discard(self, address: str, login: L) -> None:
        network = network_of(address)
        logins = self._by_network.get(network, {})
        if login in logins:
            del logins[login]
            self._count -= 1
            if not logins:
                del self._by_network[network]

    def next_to_go(self) -> L:
        """The oldest login of the address or network with the most."""
        most: dict[L, None] = max(self._by_network.values(), key=len)
        return next(iter(most))
