"""A broker: the parts that serve one node, put together, started and stopped in order.

One event loop owns everything in here. What blocks (syncing, cold reads, the store) runs in small pools of
threads that answer through the loop.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import TypeVar

from forebay.broker.administration import new_topic_id, note_created
from forebay.broker.appends import Appends
from forebay.broker.background import Background
from forebay.broker.cold_reads import ColdReads
from forebay.broker.compaction import Compactor
from forebay.broker.connection import Connection
from forebay.broker.controller import Controller
from forebay.broker.descriptors import share_descriptors
from forebay.broker.dispatch import Dispatcher, Endpoint
from forebay.broker.endpoints import ENDPOINTS
from forebay.broker.examining import Examiner
from forebay.broker.exporter import Exporter
from forebay.broker.group_commit import GroupCommit
from forebay.broker.groups import Groups
from forebay.broker.housekeeping import Housekeeping
from forebay.broker.membership import Membership
from forebay.broker.metrics import Metrics
from forebay.broker.peers import Peers, is_from_broker
from forebay.broker.ports import Ports, real_ports
from forebay.broker.producer_ids import ProducerIds
from forebay.broker.replicas import Replicas
from forebay.broker.replication.manager import Replication
from forebay.broker.server import Server
from forebay.broker.sockets import Address
from forebay.broker.stalls import StallWatch
from forebay.broker.time_searches import TimeSearches
from forebay.broker.transactions import Transactions
from forebay.broker.verifying import VerifyTransaction, refuse_transactions
from forebay.broker.waiters import Arrivals
from forebay.clock import TrustedTime, monotonic_ms
from forebay.config import BrokerConfig
from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata, ensure_cluster_id
from forebay.coordination.node_ids import allocate_node_id
from forebay.coordination.store import Store
from forebay.core.fetch_session import FetchSessions
from forebay.core.image import ALL_BROKERS, ClusterImage
from forebay.core.step import Now
from forebay.core.topics import NewTopic, create_topic
from forebay.errors import ConfigError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

_LAST_WORDS_S = 0.02
"""When the broker is stopped, so long its connections stay, for those who wait for a coordinator's answer."""
_READING_THREADS = 2
_HOUSEKEEPING_THREADS = 2

T = TypeVar("T")


class Broker:
    """Make one inside a running event loop and await `run`."""

    endpoints: dict[int, Endpoint] = ENDPOINTS

    def __init__(self, config: BrokerConfig, ports: Ports | None = None) -> None:
        self.config = config
        self.ports = ports = ports or real_ports(config)
        self.clock = ports.clock
        self.disk = ports.disk
        self.node_id: int = -1 if config.node.node_id is None else config.node.node_id
        self.metrics = Metrics()
        self.loop = asyncio.get_running_loop()
        self.arrivals = Arrivals()
        self.commit = GroupCommit(self.loop, self.metrics, ports.executor(1, "forebay-sync"))
        self.membership = Membership(self)
        self.controller = Controller(self)
        self.replication = Replication(self)
        self.appends = Appends(
            self.commit,
            self.arrivals,
            self.metrics,
            sync_on_ack=config.storage.flush_on_ack,
            may_lead=self.membership.valid,
            on_broken=self.replication.isr.consider,
        )
        self.cold_reads = ColdReads(self.loop, self.metrics, ports.executor(_READING_THREADS, "forebay-read"))
        self.compactor = Compactor(self)
        self.examiner = Examiner(self.loop, self.clock, ports.executor(1, "forebay-examine"))
        self.time_searches = TimeSearches(
            self.loop, self.clock, ports.executor(_READING_THREADS, "forebay-search")
        )
        self._pool = ports.executor(_HOUSEKEEPING_THREADS, "forebay-keep")
        self.sessions = FetchSessions(config.fetch.session_slots_max, new_id=self._new_session_id)
        self.now_ms = self.clock.now_ms
        self.stalls = StallWatch(self.metrics, lease_ttl_ms=config.cluster.lease_ttl_ms)
        self.trusted_time = TrustedTime(self.clock)
        self.peers = Peers(self)
        self.verify_transaction: VerifyTransaction = refuse_transactions
        """Asks the transaction coordinator whether partitions take part in a producer's transaction."""
        self.server = Server(
            config.socket,
            self.metrics,
            ports.network,
            descriptors=share_descriptors(config.storage.open_files_max).connections,
            handle=Dispatcher(self, self.endpoints).handle,
            finish_requests=self.appends.finish,
            wake_waiters=self.arrivals.wake,
            is_broker=is_from_broker,
            other_brokers=lambda: len(self.image.brokers.keys() - {self.node_id}),
        )
        self.exporter = Exporter(self)
        self._stopping = asyncio.Event()
        self._clean = False
        self.background = Background(self.metrics)
        # Made by run(), from what the data directory says.
        self.data: DataDir
        self.store: Store
        self.metadata: Metadata
        self.replicas: Replicas
        self.producer_ids: ProducerIds
        self.groups: Groups
        self.transactions: Transactions

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    @property
    def controller_id(self) -> int:
        """The elected one; while there is none, this broker, which answers as well as any."""
        return self.image.controller if self.image.controller in self.image.brokers else self.node_id

    # -- life ----------------------------------------------------------------------------------------

    async def run(self, on_ready: Callable[[Address], None]) -> None:
        """Serve until stop() is called; everything is closed when this returns or raises."""
        self.data = DataDir.open(self.disk, str(self.config.node.data_dir), self.ports.entropy)
        try:
            await self._run_with_store(on_ready)
        finally:
            self.cold_reads.close()
            self.examiner.close()
            self.time_searches.close()
            self.commit.close()
            self.compactor.close()
            self._pool.shutdown(wait=True)
            self.data.close(clean=self._clean)

    def stop(self) -> None:
        self._stopping.set()

    async def _run_with_store(self, on_ready: Callable[[Address], None]) -> None:
        self.store = await self.ports.open_store(self.config)
        try:
            await self._open_metadata(Keys(self.config.cluster.name))
            self.replicas = Replicas(self)
            self.groups = Groups(self)
            self.transactions = Transactions(self)
            self.verify_transaction = self.transactions.verify
            try:
                self.replicas.open_all(self.image)
                await self._serve(on_ready)
            finally:
                self.replication.close()
                self.peers.close()
                self.server.close()
                self.exporter.close()
                self.examiner.close()
                self.time_searches.close()
                self.commit.close()
                self.compactor.close()
                self._clean = self.replicas.close_all()
        finally:
            await self.store.close()

    async def _open_metadata(self, keys: Keys) -> None:
        cluster_id = await self._find_cluster_id(keys)
        if self.config.node.node_id is None:
            self.node_id = self.data.node_id or await allocate_node_id(self.store, keys)
            self.config = self.config.with_node_id(self.node_id)
        self.data.claim(cluster_id, self.node_id)
        self.metadata = await Metadata.open(self.store, keys)
        self.producer_ids = ProducerIds(self.store, keys)
        self._apply_dynamic_config(self.image)

    async def _find_cluster_id(self, keys: Keys) -> str:
        known = self.data.cluster_id
        belongs = known is not None and not self.config.cluster.embedded
        # A name that was mistyped must not become a new cluster, in which all this data is nobody's.
        if belongs and await self.store.get(keys.cluster_id) is None:
            raise ConfigError(
                f"the data directory belongs to the cluster with the cluster.id {known}, and there is no "
                f"cluster {self.config.cluster.name!r} in etcd yet: correct forebay.cluster, or start "
                "with an empty directory"
            )
        return await ensure_cluster_id(self.store, keys, known or self._new_cluster_id())

    async def _serve(self, on_ready: Callable[[Address], None]) -> None:
        listener = self.config.node.listeners[0]
        address = self.server.listen(listener.host, listener.port)
        if self.config.node.metrics is not None:
            await self.exporter.start(*self.config.node.metrics)
        async with asyncio.TaskGroup() as tasks:
            self.background.open(tasks)
            following = self.background.need(self.metadata.follow, "following the cluster's metadata")
            self.metadata.listen(self._follow_config)
            self.metadata.listen(self.peers.follow)
            self.metadata.listen(self.replicas.follow)
            self.metadata.listen(self.replication.follow)
            self.metadata.listen(self._follow_coordinators)
            self.metadata.listen(self.controller.follow)
            self.replicas.listen(self.groups.coordinator.follow)
            self.replicas.listen(self.transactions.coordinator.follow)
            await self.membership.join(address)
            self.groups.coordinator.follow()
            self.transactions.coordinator.follow()
            duties = Housekeeping(self).start()
            self.replication.start()
            keeping = self.background.need(self.membership.keep, "keeping the broker's lease")
            governing = self.background.keep(self.controller.run, "being the controller")
            self.server.start()
            on_ready(address)
            await self._stopping.wait()
            keeping.cancel()
            governing.cancel()
            await self.membership.leave()
            self.replication.close()
            self.groups.coordinator.close()
            self.transactions.close()
            for task in (following, *duties):
                task.cancel()
            await asyncio.sleep(_LAST_WORDS_S)
            self.background.close()
            self.peers.close()
            self.server.close()

    def _follow_config(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.broker_configs is not before.broker_configs:
            self._apply_dynamic_config(after)

    def _follow_coordinators(self, before: ClusterImage, after: ClusterImage) -> None:
        self.groups.follow(before, after)
        self.transactions.coordinator.follow()

    def follow_coordinators(self) -> None:
        """Partitions may be led again: coordinate on those that are led here."""
        self.groups.coordinator.follow()
        self.transactions.coordinator.follow()

    def _apply_dynamic_config(self, image: ClusterImage) -> None:
        """Settings that administrators have stored win over those the process was started with."""
        self.config = self.config.with_dynamic(
            own=image.broker_config(str(self.node_id)).overrides,
            default=image.broker_config(ALL_BROKERS).overrides,
        )
        self.server.configure(self.config.socket)
        self.replication.configure()

    def uptime_ms(self) -> int:
        """Time that only goes forward: what one measures how long something takes by."""
        return monotonic_ms(self.clock)

    def now(self) -> Now:
        """The time as the machines of coordinators want it."""
        return Now(self.uptime_ms(), self.clock.now_ms(), self.trusted_time.now_ms())

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run what blocks, and is in no hurry, beside the event loop."""
        return await self.loop.run_in_executor(self._pool, work)

    # -- what handlers ask -----------------------------------------------------------------------------

    def address_for(self, connection: Connection) -> Address:
        """Where this client reaches us: the advertised address, or else the one it came by."""
        advertised = self.config.node.advertised
        return (advertised.host, advertised.port) if advertised else connection.local

    def addresses_for(self, connection: Connection) -> list[tuple[int, str, int, str | None]]:
        """Id, host, port and rack of every live broker, and of this one in any case.

        Clients forget brokers that are not listed. While all leases have ended, because etcd was away, a list
        without the broker that answers would be empty, and leave them with nobody to ask again.
        """
        others = [(b.id, b.host, b.port, b.rack) for b in self.image.brokers.values() if b.id != self.node_id]
        own = (self.node_id, *self.address_for(connection), self.config.node.rack)
        return sorted([own, *others])

    async def create_topic_on_request(self, name: str) -> None:
        """Create a topic that a client asked about, with the broker's defaults."""
        topic = NewTopic(name=name, topic_id=new_topic_id(self))
        image = await self.metadata.change(lambda image: create_topic(image, self.config, topic))
        note_created(self, image, name)
        await self.replicas.all_open()

    def _new_session_id(self) -> int:
        return int.from_bytes(self.ports.entropy(8)) % (2**31 - 1) + 1

    def _new_cluster_id(self) -> str:
        return urlsafe_b64encode(self.ports.entropy(16)).decode().rstrip("=")
