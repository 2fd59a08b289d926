"""One idle connection to each other broker, to notice its death when the kernel does.

When a process ends, the kernel closes its connections and refuses new ones. So when a connection breaks, the
broker is called again at once. If that is refused, no process listens there, as far as can be seen from here:
that is a suspicion (`early_fencing.py` says what becomes of it). Nothing else is one: not a reset alone, not
a time-out, not a host that cannot be reached. The kernel of a process that is stopped (SIGSTOP) still accepts
connections for it.

A broker that could never be reached from here is not watched, because its address may be wrong. All of this
is about one registration: a broker that registers again is watched anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container
from functools import partial
from typing import TypeAlias

from forebay.broker.background import Background
from forebay.broker.cluster.peers.peer_connection import PeerConnection, PeerRefused
from forebay.broker.cluster.peers.peer_dialing import PeerDialing
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.registration import BrokerRegistration
from forebay.errors import KafkaError
from forebay.lazy import dataclass

_ANSWER_BYTES_MAX = 1 << 20
_FIRST_PAUSE_S = 0.2
_FIRST_PAUSE_S_MAX = 5.0
"""Between attempts to make the first connection."""
_AGAIN_S = 0.1
_AGAIN_S_MAX = 0.4
"""Between attempts to come back to a broker."""
_SHORT_S = 1.0
"""A connection that breaks within this time is not made again at once."""
_SHORT_PAUSE_S_MAX = 3.2
"""Before the next one, if many in a row were short: something accepts connections and closes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspicion:
    """A broker that was connected refuses connections."""

    peer: BrokerRegistration
    broken_at: float
    """When the connection broke, in the event loop's time."""
    refused_at: float
    refusing: Container[int]
    """All brokers that refuse connections from here."""
    refuses_again: Callable[[], Awaitable[bool]]
    """Tries once more."""


Judge: TypeAlias = Callable[[Suspicion], Awaitable[None]]


class PeerWatch:
    def __init__(
        self,
        *,
        node_id: int,
        dialing: PeerDialing,
        judge: Judge,
        background: Background,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._dialing = dialing
        self._judge = judge
        self._background = background
        self._loop = loop
        self._watches: dict[int, tuple[BrokerRegistration, asyncio.Task[None]]] = {}
        self._refusing: set[int] = set()
        self._connections: dict[int, PeerConnection] = {}
        self._broken_at: dict[int, float] = {}
        self._flapping: set[int] = set()
        """Brokers whose connections break again and again as soon as they are made."""
        self._closed = False

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Watch the brokers that are registered now."""
        if after.brokers is before.brokers or self._closed:
            return
        for broker_id, (registration, _) in list(self._watches.items()):
            if after.brokers.get(broker_id) != registration:
                self._forget(broker_id)
        for broker_id, registration in after.brokers.items():
            if broker_id != self._node_id and broker_id not in self._watches:
                begin = partial(self._watch, registration)
                self._watches[broker_id] = registration, self._background.keep(begin, "watching a broker")

    def _forget(self, broker_id: int) -> None:
        _, task = self._watches.pop(broker_id)
        self._refusing.discard(broker_id)
        self._connections.pop(broker_id, None)
        self._broken_at.pop(broker_id, None)
        self._flapping.discard(broker_id)
        task.cancel()

    def close(self) -> None:
        self._closed = True
        for broker_id in list(self._watches):
            self._forget(broker_id)

    @property
    def watched(self) -> set[int]:
        """Brokers that have been connected: only their deaths are noticed here."""
        return set(self._connections)

    def broken_since(self) -> dict[int, float]:
        """Brokers that a connection was lost to and not made again, and when, in the event loop's time.

        Without those to which connections never last: that they break says nothing.
        """
        for broker_id, connection in self._connections.items():
            connection.look()
            if connection.closed:
                self._broken_at.setdefault(broker_id, self._loop.time())
        return {each: at for each, at in self._broken_at.items() if each not in self._flapping}

    # -- one broker ----------------------------------------------------------------------------------

    async def _watch(self, peer: BrokerRegistration) -> None:
        connection = self._connections[peer.id] = await self._first(peer)
        pause_s = _AGAIN_S
        try:
            while True:
                opened_at = self._loop.time()
                await connection.broken.wait()
                broken_at = self._broken_at.setdefault(peer.id, self._loop.time())
                if broken_at - opened_at < _SHORT_S:
                    if pause_s > _AGAIN_S:
                        self._flapping.add(peer.id)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _SHORT_PAUSE_S_MAX)
                else:
                    self._flapping.discard(peer.id)
                    pause_s = _AGAIN_S
                connection = self._connections[peer.id] = await self._back(peer, broken_at)
                self._broken_at.pop(peer.id, None)
        finally:
            connection.close()

    async def _first(self, peer: BrokerRegistration) -> PeerConnection:
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return await self._open(peer)
            except KafkaError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _FIRST_PAUSE_S_MAX)

    async def _back(self, peer: BrokerRegistration, broken_at: float) -> PeerConnection:
        """A new connection, however long that takes. Each time it is refused, there may be a verdict."""
        pause_s = _AGAIN_S
        while True:
            try:
                connection = await self._open(peer)
            except PeerRefused:
                self._refusing.add(peer.id)
                await self._judge(self._suspicion(peer, broken_at))
            except KafkaError:
                self._refusing.discard(peer.id)
            else:
                self._refusing.discard(peer.id)
                return connection
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _AGAIN_S_MAX)

    def _suspicion(self, peer: BrokerRegistration, broken_at: float) -> Suspicion:
        return Suspicion(
            peer=peer,
            broken_at=broken_at,
            refused_at=self._loop.time(),
            refusing=self._refusing,
            refuses_again=partial(self._refuses, peer),
        )

    async def _refuses(self, peer: BrokerRegistration) -> bool:
        try:
            connection = await self._open(peer)
        except PeerRefused:
            return True
        except KafkaError:
            return False
        connection.close()
        return False

    async def _open(self, peer: BrokerRegistration) -> PeerConnection:
        return await self._dialing.open(
            peer,
            client_id=f"forebay-replica-{self._node_id}",
            response_bytes_max=_ANSWER_BYTES_MAX,
        )
