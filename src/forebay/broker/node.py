"""The composition root: builds every part of a broker, and hands each its few collaborators.

The order is one in which nothing is unset, and no part knows the node. What parts tell each other through
signals is connected here, and so is the order in which changes of the cluster image reach them. `broker.py`
opens what a node is made of, and starts and stops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from forebay.broker.api_table import api_table
from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.addresses import Addresses
from forebay.broker.cluster.controller import Controller
from forebay.broker.cluster.departure import Departure
from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.cluster.membership import Membership
from forebay.broker.cluster.peers import Peers, is_from_broker
from forebay.broker.cluster.topic_changes import TopicChanges
from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.host import CoordinatorHost
from forebay.broker.coordinators.markers import MarkerAppends, MarkerWriter
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.coordinators.share_errands import ShareErrands
from forebay.broker.coordinators.share_states import ShareStates
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.fetch.cold_reads import ColdReads
from forebay.broker.fetch.offsets_by_time import OffsetsByTime
from forebay.broker.fetch.service import FetchService
from forebay.broker.fetch.topic_delays import TopicDelays
from forebay.broker.live_config import LiveConfig
from forebay.broker.moves.appends import MoveAppends
from forebay.broker.moves.journal import MoveJournal
from forebay.broker.moves.live_mover import MoverHost
from forebay.broker.net.descriptors import share_descriptors
from forebay.broker.net.dispatch import Dispatcher
from forebay.broker.net.server import Server
from forebay.broker.partition.assignment import Assignment
from forebay.broker.partition.log_jobs import LogJobs
from forebay.broker.partition.long_polls import Arrivals
from forebay.broker.partition.opening import PartitionOpener
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.ports import Ports
from forebay.broker.produce.ack_expiry import AckExpiry
from forebay.broker.produce.flush import GroupCommit
from forebay.broker.produce.record_checks import Examiner
from forebay.broker.produce.service import ProduceService
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.broker.replication.fetcher import Fetcher
from forebay.broker.replication.fetchers import Following
from forebay.broker.replication.follower_append import FollowerAppend
from forebay.broker.replication.follower_tracking import Followers
from forebay.broker.replication.isr import InSyncReplicas
from forebay.broker.replication.throttle import Throttles
from forebay.broker.replication.truncation import Truncation
from forebay.broker.shares.dead_letter_target import DeadLetterTargets
from forebay.broker.shares.dead_letter_watch import DeadLetterWatch
from forebay.broker.shares.dead_letters import DeadLetterHost
from forebay.broker.shares.live_share import ShareHost
from forebay.broker.shares.offsets import EndOffsets, StartOffsets
from forebay.broker.shares.service import ShareService
from forebay.broker.shares.state_store import ShareStateStore
from forebay.broker.shares.table import ShareTable
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.telemetry.stalls import StallWatch
from forebay.broker.upkeep.compaction import Compactor
from forebay.broker.upkeep.exporter import Exporter
from forebay.broker.upkeep.gauges import Gauges
from forebay.broker.upkeep.retention import Retention
from forebay.broker.upkeep.schedule import Upkeep
from forebay.broker.worker_threads import WorkerThreads
from forebay.config import BrokerConfig, ShareGroupSettings
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Store
from forebay.core.cluster.image import ClusterImage
from forebay.core.partition.fetch_session import FetchSessions
from forebay.core.shares.sessions import ShareSessions
from forebay.storage.datadir import DataDir

_READING_THREADS = 2
_UPKEEP_THREADS = 2
_OPENING_THREADS = 4
_LOG_THREADS = 2


class Node:
    """All parts of one broker. Made inside a running event loop, from what was opened before."""

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        ports: Ports,
        time: BrokerTime,
        data: DataDir,
        store: Store,
        metadata: Metadata,
    ) -> None:
        self.node_id = node_id
        self.time = time
        self.data = data
        self.store = store
        self.disk = ports.disk
        self.metadata = metadata
        self._build_foundations(config, ports)
        self._build_partitions(ports)
        self._build_replication(ports)
        self._build_cluster(ports, store)
        self._build_coordinators(ports, store)
        self._build_upkeep(ports)
        self._build_services(ports)
        self._connect_signals()

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self.settings.current

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    # -- building --------------------------------------------------------------------------------------

    def _build_foundations(self, config: BrokerConfig, ports: Ports) -> None:
        self.loop = asyncio.get_running_loop()
        self.settings = LiveConfig(config, self.node_id)
        self.settings.apply(self.image)
        self.metrics = Metrics()
        self.background = Background(self.metrics)
        self.stalls = StallWatch(self.metrics, lease_ttl_ms=config.cluster.lease_ttl_ms)
        self.workers = WorkerThreads(self.loop, ports.executor(_UPKEEP_THREADS, "forebay-keep"))
        self._read_pool = ports.executor(_READING_THREADS, "forebay-read")
        self.lease = HeldLease()

    def _build_partitions(self, ports: Ports) -> None:
        """The partitions of this broker, and how they are written."""
        config = self.config
        self.arrivals = Arrivals()
        self.flush = GroupCommit(self.loop, self.metrics, ports.executor(1, "forebay-sync"))
        self.write_cycle = WriteCycle(
            self.flush,
            self.arrivals,
            self.metrics,
            sync_on_ack=config.storage.flush_on_ack,
            may_lead=self.lease.valid,
        )
        self.ack_expiry = AckExpiry(self.write_cycle, self.stalls, self.loop)
        self.partitions = PartitionTable(self.metadata, may_lead=self.lease.valid)
        self.departure = Departure(self.metadata, self.settings, self.node_id)
        self.assignment = Assignment(
            self.partitions,
            node_id=self.node_id,
            settings=self.settings,
            metadata=self.metadata,
            write_cycle=self.write_cycle,
            data=self.data,
            disk=ports.disk,
            opener=PartitionOpener(self.data, ports.disk, ports.clock, self.settings, self.metrics),
            opening_pool=lambda: ports.executor(_OPENING_THREADS, "forebay-open"),
            jobs=LogJobs(self.loop, ports.executor(_LOG_THREADS, "forebay-logs")),
            workers=self.workers,
            background=self.background,
            departure=self.departure,
            time=self.time,
            loop=self.loop,
        )

        self.offsets_by_time = OffsetsByTime(
            self.loop, ports.clock, ports.executor(_READING_THREADS, "forebay-search")
        )
        self.delays = TopicDelays(self.offsets_by_time, self.time, self.arrivals, self.background, self.loop)

    def _build_replication(self, ports: Ports) -> None:
        heard_ms: dict[int, int] = {}
        self.throttles = Throttles(self.config.replication)
        self.sessions = FetchSessions(
            self.config.fetch.session_slots_max,
            new_id=lambda: int.from_bytes(ports.entropy(8)) % (2**31 - 1) + 1,
        )
        self.isr = InSyncReplicas(
            node_id=self.node_id,
            settings=self.settings,
            metadata=self.metadata,
            partitions=self.partitions,
            write_cycle=self.write_cycle,
            flush=self.flush,
            lease=self.lease,
            heard_ms=heard_ms,
            background=self.background,
            metrics=self.metrics,
            time=self.time,
            loop=self.loop,
        )
        self.followers = Followers(
            self.write_cycle, self.isr, self.sessions, self.time, node_id=self.node_id, heard_ms=heard_ms
        )
        truncation = Truncation(self.data, self.assignment.lend, self.settings, self.background)
        appender = FollowerAppend(self.write_cycle, self.arrivals, self.metrics, truncation)

        def make_fetcher(leader: int, resume: Callable[[Partition], None]) -> Fetcher:
            return Fetcher(
                leader,
                node_id=self.node_id,
                settings=self.settings,
                metadata=self.metadata,
                lease=self.lease,
                network=ports.network,
                appender=appender,
                throttle=self.throttles.taking,
                metrics=self.metrics,
                loop=self.loop,
                resume=resume,
            )

        self.following = Following(make_fetcher, self.background, node_id=self.node_id)

    def _build_cluster(self, ports: Ports, store: Store) -> None:
        self.peers = Peers(
            node_id=self.node_id,
            settings=self.settings,
            metadata=self.metadata,
            lease=self.lease,
            network=ports.network,
        )
        self.membership = Membership(
            node_id=self.node_id,
            settings=self.settings,
            metadata=self.metadata,
            store=store,
            data=self.data,
            lease=self.lease,
            departure=self.departure,
            damaged=self.partitions.damaged,
            metrics=self.metrics,
            loop=self.loop,
        )
        self.controller = Controller(
            node_id=self.node_id,
            settings=self.settings,
            metadata=self.metadata,
            store=store,
            lease=self.lease,
            loop=self.loop,
        )
        self.topic_changes = TopicChanges(
            self.metadata, self.settings, self.assignment.all_open, new_id=lambda: ports.entropy(16)
        )
        self.addresses = Addresses(self.metadata, self.settings, self.node_id)

    def _build_coordinators(self, ports: Ports, store: Store) -> None:
        host = self.coordinator_host = CoordinatorHost(
            node_id=self.node_id,
            metadata=self.metadata,
            partitions=self.partitions,
            topic_changes=self.topic_changes,
            write_cycle=self.write_cycle,
            lease=self.lease,
            readers=WorkerThreads(self.loop, self._read_pool),
            background=self.background,
            metrics=self.metrics,
            time=self.time,
            loop=self.loop,
        )
        self.producer_ids = ProducerIds(store, self.metadata.keys)
        self.marker_appends = MarkerAppends(self.write_cycle, self.partitions, self.time)
        markers = MarkerWriter(
            self.marker_appends, self.peers, self.metadata, self.write_cycle, self.loop, node_id=self.node_id
        )
        self.share_states = ShareStates(host, self.settings, self.peers)
        end_offsets = EndOffsets(
            self.metadata, self.partitions, self.peers, self.delays, node_id=self.node_id
        )
        share_errands = ShareErrands(self.share_states, end_offsets.of, self.loop)
        self.move_journal = MoveJournal(host, self.peers)
        self.groups = Groups(host, self.settings, share_errands, entropy=ports.entropy)
        self.transactions = Transactions(host, self.settings, self.peers, self.producer_ids, markers)

    def _build_upkeep(self, ports: Ports) -> None:
        self.compactor = Compactor(
            settings=self.settings,
            metadata=self.metadata,
            partitions=self.partitions,
            data=self.data,
            disk=ports.disk,
            checkpoint=self.assignment.checkpoint,
            pool=ports.executor(1, "forebay-clean"),
            background=self.background,
            metrics=self.metrics,
            time=self.time,
            loop=self.loop,
        )

    def _build_services(self, ports: Ports) -> None:
        """What requests are handed to, and the server that takes them."""
        clock, config = ports.clock, self.config
        self.cold_reads = ColdReads(self.loop, self.metrics, self._read_pool)
        self.examiner = Examiner(self.loop, clock, ports.executor(1, "forebay-examine"))
        produce = ProduceService(
            partitions=self.partitions,
            metadata=self.metadata,
            write_cycle=self.write_cycle,
            examiner=self.examiner,
            verify_transaction=self.transactions.verify,
            metrics=self.metrics,
            now_ms=self.time.now_ms,
            sync_on_ack=config.storage.flush_on_ack,
        )
        fetch = FetchService(
            node_id=self.node_id,
            settings=self.settings,
            metadata=self.metadata,
            partitions=self.partitions,
            sessions=self.sessions,
            cold_reads=self.cold_reads,
            delays=self.delays,
            arrivals=self.arrivals,
            followers=self.followers,
            throttle=self.throttles.giving,
            lease=self.lease,
            metrics=self.metrics,
            time=self.time,
            loop=self.loop,
        )
        self._build_shares()
        endpoints = api_table(
            node_id=self.node_id,
            settings=self.settings,
            metadata=self.metadata,
            partitions=self.partitions,
            topic_changes=self.topic_changes,
            addresses=self.addresses,
            peers=self.peers,
            produce=produce,
            fetch=fetch,
            offsets_by_time=self.offsets_by_time,
            delays=self.delays,
            groups=self.groups,
            transactions=self.transactions,
            share_states=self.share_states,
            shares=self.shares,
            moves=self.move_journal,
            producer_ids=self.producer_ids,
            marker_appends=self.marker_appends,
            write_cycle=self.write_cycle,
            disk=ports.disk,
            background=self.background,
            time=self.time,
            loop=self.loop,
        )
        self.server = Server(
            config.socket,
            self.metrics,
            ports.network,
            descriptors=share_descriptors(config.storage.open_files_max).connections,
            handle=Dispatcher(endpoints, self.background).handle,
            finish_requests=self.write_cycle.finish,
            wake_waiters=self.arrivals.wake,
            is_broker=is_from_broker,
            other_brokers=lambda: len(self.image.brokers.keys() - {self.node_id}),
        )
        self.upkeep = Upkeep(
            settings=self.settings,
            partitions=self.partitions,
            assignment=self.assignment,
            write_cycle=self.write_cycle,
            retention=Retention(self.metrics, self.time),
            compactor=self.compactor,
            isr=self.isr,
            close_idle=self.server.close_idle,
            disk=ports.disk,
            workers=self.workers,
            background=self.background,
            time=self.time,
        )
        gauges = Gauges(
            partitions=self.partitions,
            controller=self.controller,
            sessions=self.sessions,
            server=self.server,
            lease=self.lease,
            stalls=self.stalls,
            metadata=self.metadata,
            shares=self.shares.shares,
        )
        self.exporter = Exporter(self.metrics, gauges)

    def _build_shares(self) -> None:
        sessions = ShareSessions(self.config.groups.share.max_share_sessions)
        start_offsets = StartOffsets(self.offsets_by_time, self.delays, self.time)
        host = ShareHost(
            store=ShareStateStore(self.share_states),
            resolve_start=start_offsets.resolve,
            dead_letters=self._dead_letters(),
            cold_reads=self.cold_reads,
            arrivals=self.arrivals,
            background=self.background,
            time=self.time,
            loop=self.loop,
        )

        def settings_of(group_id: str) -> ShareGroupSettings:
            return self.groups.settings_of(group_id).share

        self.shares = ShareService(
            settings=self.settings,
            settings_of=settings_of,
            metadata=self.metadata,
            sessions=sessions,
            shares=ShareTable(host, self.partitions, sessions, settings_of=settings_of),
            cold_reads=self.cold_reads,
            delays=self.delays,
            lease=self.lease,
            metrics=self.metrics,
            time=self.time,
            loop=self.loop,
        )
        self.dead_letter_watch = DeadLetterWatch(
            self.share_states, self.shares.shares, self.peers, self.metadata, node_id=self.node_id
        )

    def _dead_letters(self) -> DeadLetterHost:
        appends = MoveAppends(
            self.metadata,
            self.partitions,
            self.peers,
            self.write_cycle,
            self.examiner,
            self.time,
            self.loop,
            node_id=self.node_id,
        )
        return DeadLetterHost(
            mover=MoverHost(
                journal=self.move_journal,
                appends=appends,
                producer_ids=self.producer_ids,
                metadata=self.metadata,
                workers=self.workers,
                background=self.background,
            ),
            targets=DeadLetterTargets(self.metadata, self.settings, self.topic_changes),
            metrics=self.metrics,
            time=self.time,
        )

    def _connect_signals(self) -> None:
        self.write_cycle.broken.listen(self.isr.consider)
        self.flush.failed.listen(self.isr.flush_failed)
        self.assignment.role_taken.listen(self.following.role_taken)
        self.assignment.role_taken.listen(self.followers.role_taken)
        self.assignment.dropped.listen(self.following.dropped)
        self.assignment.opened.listen(self.groups.coordinator.follow)
        self.assignment.opened.listen(self.transactions.coordinator.follow)
        self.assignment.opened.listen(self.share_states.coordinator.follow)
        self.assignment.opened.listen(self.move_journal.coordinator.follow)
        self.membership.rejoined.listen(self.groups.coordinator.follow)
        self.membership.rejoined.listen(self.transactions.coordinator.follow)
        self.membership.rejoined.listen(self.share_states.coordinator.follow)
        self.membership.rejoined.listen(self.move_journal.coordinator.follow)
        self.server.closed.listen(self.shares.connection_closed)

    def follow_metadata(self) -> None:
        """The order in which parts are given a new image. Settings come first. Then the partitions take their
        roles, before the coordinators look at what is led here; the controller decides last."""
        self.metadata.listen(self._follow_settings)
        self.metadata.listen(self.peers.follow)
        self.metadata.listen(self.assignment.follow)
        self.metadata.listen(self.following.follow)
        self.metadata.listen(self.share_states.follow)
        self.metadata.listen(self.move_journal.follow)
        self.metadata.listen(self.groups.follow)
        self.metadata.listen(self.shares.shares.follow)
        self.metadata.listen(self.transactions.follow)
        self.metadata.listen(self.controller.follow)

    def _follow_settings(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.broker_configs is not before.broker_configs:
            self.settings.apply(after)
            self.server.configure(self.config.socket)
            self.throttles.configure(self.config.replication)
