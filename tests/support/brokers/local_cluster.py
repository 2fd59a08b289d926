"""Several brokers on the event loop of a test, around one store in memory.

Everything but the processes and etcd is real: sockets, files, replication. A broker that is killed says
nothing to anybody; its lease ends when the test says so (`bury`).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forebay.broker.broker import Broker
from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.node import Node
from forebay.broker.system_ports import real_ports
from forebay.config import BrokerConfig, broker_config
from forebay.coordination.store import Compare, Delete, Event, KeyValue, Put, Store, StoreError, TxnResult
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.replicas.controller import plan
from forebay.errors import KafkaError
from forebay.storage.real_disk import RealDisk
from forebay.wire.fields import Request
from support.brokers.memory_store import MemoryLease, MemoryStore

_SECONDS_MAX = 120.0
"""How long anything may take on a machine with much else to do. Only what hangs takes as long."""
_LATE_S = 0.3


class _Session:
    """One broker's share of the store: when it is closed, the others go on."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.known = store.known
        self.get = store.get
        self.identity = store.identity
        self.expiring = store.expiring
        self.revoke = store.revoke
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """Done once, when the broker has loaded its image and before it goes on."""
        self.leases: list[MemoryLease] = []
        self.delay_s = 0.0
        self.refused: asyncio.Event | None = None
        """While it is there nothing can be written, and it says whether somebody has tried."""
        self.informed = asyncio.Event()
        """Whether watches tell what changes."""
        self.informed.set()

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        found = await self._store.range(prefix)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        if self.refused is not None:
            self.refused.set()
            raise StoreError("the store does not answer")
        result = await self._store.txn(compares, puts, deletes)
        await asyncio.sleep(self.delay_s)
        return result

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        async for events, revision in self._store.watch(prefix, from_revision):
            await self.informed.wait()
            yield events, revision

    async def lease(self, ttl_s: float) -> MemoryLease:
        lease = await self._store.lease(ttl_s)
        self.leases.append(lease)
        return lease

    async def close(self) -> None:
        """What it held stays until its lease ends."""


@dataclass(slots=True)
class _Running:
    broker: Broker
    node: Node
    task: asyncio.Task[None]
    session: _Session
    address: tuple[str, int]


class LocalCluster:
    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        make_disk: Callable[[], RealDisk],
        settings_of: Callable[[int], Mapping[str, str]],
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._settings_of = settings_of
        self._make_disk = make_disk
        self._store = MemoryStore()
        self._running: dict[int, _Running] = {}
        self._dead: dict[int, _Session] = {}
        self._clients: dict[int, PeerConnection] = {}
        self._connecting: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    # -- brokers ---------------------------------------------------------------------------------------

    async def start(
        self,
        node_id: int,
        directory: str | None = None,
        *,
        at_once: bool = False,
        meanwhile: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """With a name for its directory it is another disk than the one it had.

        `at_once`: before the lease of the process before has ended, so that nobody has missed it. `meanwhile`
        is done when it has loaded its image, and its watch is late to tell of it.
        """
        if at_once:
            self._dead.pop(node_id)
        await self.bury(node_id)
        session = _Session(self._store)
        if meanwhile is not None:
            session.meanwhile = meanwhile
            session.informed.clear()
            asyncio.get_running_loop().call_later(_LATE_S, session.informed.set)

        async def open_store(_: BrokerConfig) -> Store:
            return session

        config = broker_config(
            {
                "log.dirs": str(self._directory / (directory or f"node-{node_id}")),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "forebay.cluster": "etcd://in-memory:1/test",
                "node.id": str(node_id),
                "forebay.failover.verdicts.per.minute": "0",
                **self._settings,
                **self._settings_of(node_id),
            }
        )
        ports = replace(real_ports(config), open_store=open_store, disk=self._make_disk())
        broker = Broker(config, ports)
        ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(broker.run(ready.set_result))
        task.add_done_callback(lambda _: ready.cancel())
        try:
            await ready
        except asyncio.CancelledError:
            await task  # it says why
            raise
        assert broker.node is not None
        self._running[node_id] = _Running(broker, broker.node, task, session, ready.result())

    async def kill(self, node_id: int) -> None:
        """End a broker without a word. It is missed only when it is buried."""
        running = self._running.pop(node_id)
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.close()
        running.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running.task
        self._dead[node_id] = running.session

    async def kill_all(self) -> None:
        """End all brokers at once: their leases end, and nobody is left to act on it."""
        for node_id in list(self._running):
            await self.kill(node_id)
        dead, self._dead = self._dead, {}
        for session in dead.values():
            for lease in session.leases:
                self._store.expire(lease)

    async def crash(self, node_id: int) -> None:
        """Kill a broker that cannot even close its files: its disk stays as it is at this moment."""
        directory = Path(self[node_id].data.path)
        kept = directory.with_name(f"{directory.name}-kept")
        shutil.copytree(directory, kept)
        await self.kill(node_id)
        shutil.rmtree(directory)
        kept.rename(directory)

    async def stop(self, node_id: int) -> None:
        """End a broker as an administrator does: it hands over first."""
        running = self._running[node_id]
        running.broker.stop()
        await running.task
        del self._running[node_id]
        client = self._clients.pop(node_id, None)
        if client is not None:
            client.close()

    async def bury(self, node_id: int) -> None:
        """The lease of a dead broker ends; returns when others are elected."""
        session = self._dead.pop(node_id, None)
        if session is not None:
            for lease in session.leases:
                self._store.expire(lease)
            await self.settle()

    def session(self, node_id: int) -> Store:
        """The store as a broker uses it."""
        return self._running[node_id].session

    async def end_registration(self, node_id: int) -> None:
        """As another broker does that counts this one as dead."""
        keys = self._anyone.metadata.keys
        await self._store.txn(deletes=[Delete(key=keys.broker(node_id))])

    def slow_down(self, node_id: int, delay_s: float) -> None:
        """Let the store's answers to a broker take so long."""
        self._running[node_id].session.delay_s = delay_s

    @contextlib.contextmanager
    def unwritable(self, node_id: int) -> Iterator[asyncio.Event]:
        """Let the store refuse what a broker writes for a while; set when it has refused something."""
        session = self._running[node_id].session
        session.refused = asyncio.Event()
        try:
            yield session.refused
        finally:
            session.refused = None

    @contextlib.contextmanager
    def uninformed(self, node_id: int) -> Iterator[None]:
        """Let a broker hear of no change of the cluster for a while, though the store answers it."""
        informed = self._running[node_id].session.informed
        informed.clear()
        try:
            yield
        finally:
            informed.set()

    async def settle(self) -> None:
        """Wait until the controller has done what there is to do, and all have heard of it."""

        def is_settled(broker: Node) -> bool:
            return not plan(broker.image, broker.config.controller)

        revision = (await self._store.range("/"))[1]
        for running in self._running.values():
            await running.node.metadata.wait_for(revision)
        await eventually(lambda: all(is_settled(running.node) for running in self._running.values()))

    async def close(self) -> None:
        for node_id in list(self._running):
            await self.kill(node_id)
        await self._store.close()

    def __getitem__(self, node_id: int) -> Node:
        return self._running[node_id].node

    def address(self, node_id: int) -> tuple[str, int]:
        return self._running[node_id].address

    @property
    def nodes(self) -> list[int]:
        return list(self._running)

    # -- asking ----------------------------------------------------------------------------------------

    async def ask(self, node_id: int, request: Request, version: int) -> Any:
        """What a broker answers to a client, which sends its requests in order over one connection."""
        async with self._connecting[node_id]:
            client = self._clients.get(node_id)
            if client is None or client.closed:
                client = self._clients[node_id] = await self._connected(node_id)
        return await client.ask(request, version, timeout_s=_SECONDS_MAX)

    async def _connected(self, node_id: int) -> PeerConnection:
        """Tried again once, for a loop that had no time to accept a connection before that gave up."""
        for attempt in range(2):
            with contextlib.suppress(KafkaError) if attempt == 0 else contextlib.nullcontext():
                return await PeerConnection.open(
                    SocketNetwork().connect,
                    *self._running[node_id].address,
                    client_id="test",
                    response_bytes_max=1 << 24,
                )
        raise AssertionError("unreachable")

    # -- looking ---------------------------------------------------------------------------------------

    def state(self, topic: str, index: int = 0) -> PartitionState:
        state = self._anyone.image.partition(topic, index)
        assert state is not None, f"there is no {topic}-{index}"
        return state

    def leader(self, topic: str, index: int = 0) -> int:
        return self.state(topic, index).leader

    @property
    def _anyone(self) -> Node:
        return self._informed[0]

    @property
    def _informed(self) -> list[Node]:
        return [each.node for each in self._running.values() if each.session.informed.is_set()]

    # -- changing --------------------------------------------------------------------------------------

    async def change(self, topic: str, index: int, **changes: Any) -> None:
        """Write another state of a partition, and wait until all informed brokers have heard of it."""
        anyone = self._anyone
        put = PartitionPut(
            topic_id=anyone.image.topics[topic].topic_id, state=replace(self.state(topic, index), **changes)
        )
        image = await anyone.metadata.change(lambda _: [put])
        for broker in self._informed:
            await broker.metadata.wait_for(image.revision)

    async def lead(self, topic: str, index: int, node_id: int) -> None:
        """Have another broker elected."""
        epoch = self.state(topic, index).leader_epoch
        await self.change(topic, index, leader=node_id, leader_epoch=epoch + 1)

    @contextlib.contextmanager
    def deaf(self, topic: str, *nodes: int, index: int = 0) -> Iterator[None]:
        """Brokers that fetch nothing of a partition for a while, though they live."""
        for node in nodes:
            self[node].replication.following.dropped(self[node].partitions.held(topic, index))
        yield
        for node in nodes:
            if node in self._running:
                partition = self[node].partitions.held(topic, index)
                self[node].assignment.roles.taken.send(partition, self.state(topic, index))

    async def knows(self, topic: str) -> None:
        """Wait until every broker has heard of a topic and has opened what it holds of it."""
        await eventually(
            lambda: all(topic in running.node.image.topics for running in self._running.values())
        )
        for running in self._running.values():
            await running.node.assignment.later.all_open()

    async def in_sync(self, topic: str, index: int = 0) -> None:
        """Wait until every live replica of a partition is in sync, and open, which new topics are later."""

        def is_in_sync() -> bool:
            state = self.state(topic, index)
            live = set(state.replicas) & {*self.nodes}
            return set(state.isr) >= live and all(self[node].partitions.held(topic, index) for node in live)

        await eventually(is_in_sync)


async def eventually(condition: Callable[[], Any]) -> Any:
    """Wait until something is true; what it was. A partition that is not in use for a moment is not yet."""
    async with asyncio.timeout(_SECONDS_MAX):
        while True:
            with contextlib.suppress(KafkaError):
                found = condition()
                if found:
                    return found
            await asyncio.sleep(0.01)


async def retried(attempt: Callable[[], Any], *errors: int) -> Any:
    """What `attempt` answers in the end, when some errors are no answer: it is what clients do."""
    async with asyncio.timeout(_SECONDS_MAX):
        while True:
            with contextlib.suppress(KafkaError):  # the connection broke
                answer, code = await attempt()
                if code not in errors:
                    return answer
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def local_cluster(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    brokers: int = 3,
    make_disk: Callable[[], RealDisk] = RealDisk,
    settings_of: Callable[[int], Mapping[str, str]] = lambda _: {},
) -> AsyncIterator[LocalCluster]:
    """`settings_of` gives what is different from node to node."""
    cluster = LocalCluster(directory, settings or {}, make_disk, settings_of)
    try:
        for node_id in range(1, brokers + 1):
            await cluster.start(node_id)
        yield cluster
    finally:
        await cluster.close()
