"""What is known of other brokers by the connections to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from forebay.broker.background import Background
from forebay.broker.cluster.failover.peer_watch import PeerWatch, Suspicion
from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.cluster.peers.peer_dialing import PeerDialing
from forebay.broker.telemetry.metrics import Metrics
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut
from forebay.core.cluster.registration import BrokerRegistration
from support.brokers.local_cluster import eventually

PEER = BrokerRegistration(id=2, host="127.0.0.1", port=1)


class Line:
    """Stands in for a connection that was made: it only breaks."""

    def __init__(self) -> None:
        self.closed = False
        self.broken = asyncio.Event()

    def look(self) -> None: ...

    def close(self) -> None:
        self.closed = True
        self.broken.set()


class Dialing(PeerDialing):
    """Makes connections, as long as the peer answers."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.lines: list[Line] = []

    async def open(self, *_: object, **__: object) -> PeerConnection:
        await self.answers.wait()
        self.lines.append(Line())
        return self.lines[-1]  # type: ignore[return-value]


@asynccontextmanager
async def watching(dialing: Dialing) -> AsyncIterator[PeerWatch]:
    async def judge(_: Suspicion) -> None: ...

    background = Background(Metrics())
    async with asyncio.TaskGroup() as tasks:
        background.open(tasks)
        watch = PeerWatch(
            node_id=1,
            dialing=dialing,
            judge=judge,
            background=background,
            loop=asyncio.get_running_loop(),
        )
        empty = ClusterImage(cluster_id="c")
        watch.follow(empty, empty.apply([BrokerPut(registration=PEER)]))
        await eventually(lambda: watch.watched)
        yield watch
        watch.close()


async def test_a_lost_connection_is_known_until_there_is_another() -> None:
    dialing = Dialing()
    async with watching(dialing) as watch:
        assert watch.broken_since() == {}
        dialing.answers.clear()
        dialing.lines[0].close()
        assert [*watch.broken_since()] == [PEER.id]
        dialing.answers.set()
        await eventually(lambda: not watch.broken_since())
        assert len(dialing.lines) == 2


async def test_connections_that_never_last_say_nothing() -> None:
    dialing = Dialing()
    async with watching(dialing) as watch:
        dialing.lines[0].close()
        await eventually(lambda: len(dialing.lines) == 2)
        dialing.answers.clear()
        dialing.lines[1].close()
        await eventually(lambda: not watch.broken_since())
        assert len(dialing.lines) == 2
        dialing.answers.set()
