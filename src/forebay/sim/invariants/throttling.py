"""Invariants of throttling: a broker reads nothing on a connection that it has told to wait.

So a request that the client sends after that is not answered before the wait is over. The wait begins when
the broker handles the request that exceeded the quota, which is after it was sent. A change of the quotas
ends all waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.sim.world.virtual_time import World
from forebay.wire.fields import Response

_ROUNDING_S = 0.002
"""Clients are told whole milliseconds."""


class _Wait(NamedTuple):
    until: float
    quotas: object
    """The quotas in force on the broker before it could have handled the request."""


class Asked(NamedTuple):
    """A request on its way."""

    host: str
    connection: PeerConnection
    at: float
    quotas: object
    wait: _Wait | None
    """The wait that the client had been told before."""


class Waits:
    def __init__(self, world: World, quotas_of: Callable[[str], object]) -> None:
        """`quotas_of`: the quotas in force on a host now; another object after each change."""
        self._world = world
        self._quotas_of = quotas_of
        self._waits: WeakKeyDictionary[PeerConnection, _Wait] = WeakKeyDictionary()

    def asked(self, host: str, connection: PeerConnection) -> Asked:
        return Asked(host, connection, self._world.now, self._quotas_of(host), self._waits.get(connection))

    def answered(self, asked: Asked, response: Response) -> None:
        now, wait = self._world.now, asked.wait
        if wait is not None and now < wait.until and self._quotas_of(asked.host) is wait.quotas:
            self._world.fail(
                f"{asked.host} told a client to wait until {wait.until:.3f}, and served it before"
            )
        until = asked.at + getattr(response, "throttle_time_ms", 0) / 1000 - _ROUNDING_S
        known = self._waits.get(asked.connection)
        if until > now and (known is None or until > known.until):
            self._waits[asked.connection] = _Wait(until, asked.quotas)
