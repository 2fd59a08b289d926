"""The composition root: builds every part of a broker, and hands each its few collaborators.

The order is one in which nothing is unset, and no part knows the node. Parts that belong together are built
in `composition/`. What parts tell each other through signals is connected here, and so is the order in which
changes of the cluster image reach them. `broker.py` opens what a node is made of, and starts and stops it.
"""

from __future__ import annotations

from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING

from forebay.broker.api_table import APIS, open_endpoint
from forebay.broker.authorization.authorization import opened_by_broker, sent_by_broker
from forebay.broker.authorization.guarded_endpoints import guard_endpoint
from forebay.broker.cluster.addresses import Addresses
from forebay.broker.cluster.controller import Controller
from forebay.broker.cluster.membership import Membership
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.cluster.predecessor import Predecessor
from forebay.broker.cluster.topic_changes import TopicChanges
from forebay.broker.composition.coordinators import Coordinators
from forebay.broker.composition.failover import Failover
from forebay.broker.composition.local_partitions import LocalPartitions
from forebay.broker.composition.optional.optional_parts import OptionalParts
from forebay.broker.composition.replication import Replication
from forebay.broker.fetch.cold_reads import ColdReads
from forebay.broker.net.descriptors import share_descriptors
from forebay.broker.net.dispatch import Dispatcher, Endpoint
from forebay.broker.net.large_requests import LargeRequests
from forebay.broker.net.server import Server
from forebay.broker.produce.ack_expiry import AckExpiry
from forebay.broker.produce.record_checks import Examiner
from forebay.broker.quotas.metering import RequestMeter
from forebay.broker.replication.claims import Claims
from forebay.broker.tokens.expired_tokens import ExpiredTokens
from forebay.broker.upkeep.deleted_topics import DeletedTopics
from forebay.broker.upkeep.folded_partitions import FoldedPartitions
from forebay.broker.upkeep.growing_topics import GrowingTopics
from forebay.broker.upkeep.retention import Retention
from forebay.broker.upkeep.schedule import Upkeep
from forebay.core.cluster.restore_image import EPOCHS_SKIPPED
from forebay.lazy import load
from forebay.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.fetch.fetch_host import FetchHost
    from forebay.broker.handlers.api_versions import ApiVersions
    from forebay.broker.large_answers import LargeAnswers
    from forebay.broker.net.connection import Handle
    from forebay.broker.partition.partition import Partition
    from forebay.broker.produce.produce_host import ProduceHost
    from forebay.broker.prometheus.exporter import Exporter
    from forebay.broker.upkeep.compaction import Compactor
    from forebay.config import BrokerConfig, Listener
    from forebay.core.cluster.image import ClusterImage

_OPTIONAL = "forebay.broker.composition.optional"
_PROCESS_BYTES = 8


class Node(OptionalParts):
    """All parts of one broker."""

    def __init__(self, base: Foundations) -> None:
        self._base = base
        self.node_id = base.node_id
        self.data = base.data
        self.store = base.store
        self.disk = base.ports.disk
        self.metadata = base.metadata
        self.settings = base.settings
        self.quotas = base.quotas
        self.time = base.time
        self.loop = base.loop
        self.metrics = base.metrics
        self.audit = base.audit
        self.events = base.events
        self.background = base.background
        self.stalls = base.stalls
        self.workers = base.workers
        self.lease = base.lease
        self.tls = base.tls
        local = self.local = LocalPartitions(base)
        self.partitions = local.table
        self.assignment = local.assignment
        self.write_cycle = local.write_cycle
        self.offsets_by_time = local.offsets_by_time
        self.replication = Replication(base, local, self.remote.producers)
        self._build_cluster()
        self.coordinators = Coordinators(base, local, self.peers, self.topic_changes)
        self._build_readers()
        self._build_server()
        self._build_upkeep()
        self._connect_signals()

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self._base.settings.current

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    # -- building --------------------------------------------------------------------------------------

    def _build_cluster(self) -> None:
        base, entropy = self._base, self._base.ports.entropy
        self.peers = Peers(
            node_id=self.node_id,
            settings=base.settings,
            metadata=self.metadata,
            lease=self.lease,
            dialing=base.dialing,
            own_address=lambda: self.server.addresses[self.config.node.listeners.inter_broker.name],
        )
        self.membership = Membership(
            node_id=self.node_id,
            settings=base.settings,
            metadata=self.metadata,
            store=self.store,
            data=self.data,
            lease=self.lease,
            departure=self.local.departure,
            predecessor=Predecessor(self.store, self.metadata.keys, self.lease, base.dialing, self.loop),
            late_roles=self.assignment.late_roles,
            process=entropy(_PROCESS_BYTES).hex(),
            damaged=self.partitions.damaged,
            metrics=self.metrics,
            loop=self.loop,
        )
        self.store_memory = base.store_memory
        self.claims = Claims(
            node_id=self.node_id,
            metadata=self.metadata,
            store=self.store,
            lease=self.lease,
            data=self.data,
            opener=self.local.opener,
            partitions=self.partitions,
            workers=self.workers,
            metrics=self.metrics,
        )
        self.controller = Controller(
            node_id=self.node_id,
            settings=base.settings,
            metadata=self.metadata,
            store=self.store,
            lease=self.lease,
            loop=self.loop,
        )
        self.failover = Failover(base)
        self.topic_changes = TopicChanges(
            self.metadata, base.settings, self.assignment.later.all_open, new_id=lambda: entropy(16)
        )

    def _build_readers(self) -> None:
        """Build the parts that read records in threads of their own."""
        ports, loop = self._base.ports, self.loop
        self.cold_reads = ColdReads(loop, self.metrics, self._base.read_pool)
        self.examiner = Examiner(loop, ports.clock, ports.executor(1, "forebay-examine"))

    def _build_server(self) -> None:
        config = self.config
        storage = config.storage
        shares = share_descriptors(storage.open_files_max, storage.delay_indexes_open_max)
        self._large_requests = LargeRequests(
            self.background,
            self.loop,
            thread_cpu=self._base.ports.clock.thread_cpu,
            shortage=self._base.core_shortage,
            is_trusted=self._base.is_trusted,
            stalls=self.stalls,
            answers=lambda: self.large_answers,
            elements_max=lambda: self.config.socket.request_elements_max,
            sent_by_broker=partial(sent_by_broker, self._base.authorization),
            finish=self._finish_piece,
        )
        self._dispatcher = Dispatcher(
            self._open_endpoint,
            self.background,
            self._large_requests,
            self.stalls,
            self.metrics.requests,
            self.loop.time,
        )
        self._has_logins = any(
            each.protocol.is_sasl or each.protocol.is_tls for each in config.node.listeners.all
        )
        self.server = Server(
            config.socket,
            self.metrics,
            self.stalls,
            self._base.ports.network,
            self._base.tls,
            self._base.strangers,
            thread_cpu=self._base.ports.clock.thread_cpu,
            descriptors=shares.connections,
            handler=self._handler_of,
            finish_requests=self.write_cycle.finish,
            wake_waiters=self.local.arrivals.wake,
            inter_broker=config.node.listeners.inter_broker,
            is_broker=partial(opened_by_broker, self._base.authorization),
            other_brokers=lambda: len(self.image.brokers.keys() - {self.node_id}),
            connection_wait_s=self._base.quotas.connection_wait_s,
            make_room=lambda: self._has_logins and self.logins.make_room(),
        )
        self._count_requests()

    def _handler_of(self, listener: Listener) -> Handle:
        """The function that handles the first requests of a listener's connections."""
        return self.login_gate.handler(listener) if self._has_logins else self._dispatcher.handle

    def _count_requests(self) -> None:
        """Have requests counted for quotas, if there are any."""
        quotas = self._base.quotas
        meter = RequestMeter(quotas) if quotas.active else None
        self._dispatcher.meter = self._large_requests.debts.meter = meter

    def _finish_piece(self) -> None:
        self.write_cycle.finish()
        self.local.arrivals.wake()

    # -- what requests need ----------------------------------------------------------------------------

    def _open_endpoint(self, api_key: int) -> Endpoint | None:
        endpoint = open_endpoint(lambda name: attrgetter(name)(self), api_key)
        if endpoint is None:
            return None
        guarded = guard_endpoint(endpoint, self._base.authorization, self.audit)
        if api_key == ApiKey.PRODUCE and self.config.tracing.endpoint:
            return load(f"{_OPTIONAL}.tracing:traced_produce")(self._base, guarded)
        return guarded

    @cached_property
    def large_answers(self) -> LargeAnswers:
        return load("forebay.broker.large_answers:LargeAnswers")(lambda: self.image, self.coordinators)

    @cached_property
    def api_versions(self) -> ApiVersions:
        return load("forebay.broker.handlers.api_versions:ApiVersions")(APIS)

    @cached_property
    def addresses(self) -> Addresses:
        return Addresses(self.metadata, self.settings, self.node_id, self.failover.pending)

    @cached_property
    def produce(self) -> ProduceHost:
        return load(f"{_OPTIONAL}.request_hosts:produce_host")(
            self._base,
            self.local,
            examiner=self.examiner,
            verify_transaction=lambda *question: self.transactions.verify(*question),
            takers=self.takers,
        )

    @cached_property
    def fetch(self) -> FetchHost:
        return load(f"{_OPTIONAL}.request_hosts:fetch_host")(
            self._base,
            self.local,
            self.replication,
            cold_reads=self.cold_reads,
            remote_reads=self.remote.reads,
            filters=lambda: self.filters,
            slices=self._large_requests.slices,
        )

    def _build_upkeep(self) -> None:
        base = self._base
        self.ack_expiry = AckExpiry(self.write_cycle, self.stalls, self.loop)
        self.growing = GrowingTopics(
            self.partitions,
            self.metadata,
            self.peers,
            self.write_cycle,
            self.loop,
            now_ms=self.time.now_ms,
            node_id=self.node_id,
            has_under_way=lambda *at: self.takers.has_under_way(*at),
        )
        self.upkeep = Upkeep(
            settings=base.settings,
            partitions=self.partitions,
            assignment=self.assignment,
            write_cycle=self.write_cycle,
            retention=Retention(self.metrics, self.time),
            compactor=lambda: self.compactor,
            folded=FoldedPartitions(
                self.partitions,
                self.metadata,
                base.settings,
                self.time,
                self,
                node_id=self.node_id,
            ),
            expired_tokens=ExpiredTokens(self.metadata, self.controller, self.time),
            deleted_topics=DeletedTopics(self.metadata, base.settings, self.controller, self.time),
            isr=self.replication.isr,
            close_idle=partial(self.server.close_idle, self.holds_records),
            tended=base.data.tended_logs,
            disk=self.disk,
            workers=self.workers,
            background=self.background,
            time=self.time,
        )

    @cached_property
    def compactor(self) -> Compactor:
        return load(f"{_OPTIONAL}.compaction:compactor")(self._base, self.local)

    @cached_property
    def exporter(self) -> Exporter:
        return load(f"{_OPTIONAL}.exporter:exporter")(
            self._base,
            self.local,
            server=self.server,
            controller=self.controller,
            sessions=self.replication.sessions,
            slices=self._large_requests.slices,
            peers=self.peers,
            positions=self.positions,
            groups=lambda: self.groups if "groups" in vars(self.coordinators) else None,
            shares=lambda: self.shares.shares if self.has("_shares") else (),
            fill_states=lambda: self.filling.states() if self.has("filling") else (),
        )

    # -- connecting ------------------------------------------------------------------------------------

    def _connect_signals(self) -> None:
        replication, assignment, roles = self.replication, self.assignment, self.assignment.roles
        roles.ahead.listen(self.claims.found_ahead)
        self.write_cycle.broken.listen(replication.isr.consider)
        self.local.flush.failed.listen(replication.isr.flush_failed)
        roles.taken.listen(replication.following.role_taken)
        roles.taken.listen(replication.followers.role_taken)
        roles.term_begun.listen(replication.followers.term_begun)
        roles.term_begun.listen(self._note_election)
        roles.taken.listen(self.role_taken)
        assignment.configured.listen(self.configured)
        assignment.dropped.listen(replication.following.dropped)
        assignment.dropped.listen(self.dropped)
        assignment.opened.listen(self.coordinators.follow)
        self.membership.rejoined.listen(self.coordinators.follow)
        self.server.closed.listen(self.connection_closed)
        if self._has_logins:
            self.server.opened.listen(self.login_gate.opened)
            self.server.secured.listen(self.logins.end_handshake)
            self.server.closed.listen(self.logins.forget)
            self.login_gate.passed.listen(self.server.authenticated)
        self._base.quotas.changed.listen(self._count_requests)
        self._base.quotas.changed.listen(self.server.forget_fast_paths)
        self._base.quotas.changed.listen(self.server.unmute_all)
        if self._base.authorization is not None:
            self._base.authorization.changed.listen(self.server.forget_fast_paths)
            self._base.authorization.changed.listen(self.partitions.release_long_polls)

    def _note_election(self, partition: Partition) -> None:
        if partition.leader_epoch % EPOCHS_SKIPPED:  # the first leader of a new partition is not elected
            self._base.events.elected(partition.topic, partition.index)

    def follow_metadata(self) -> None:
        """The order in which parts are given a new image. Settings, access rules and quotas come first, then
        whether this broker may lead at all. Then the partitions take their roles, before the coordinators
        look at what is led here; the controller decides last."""
        self.metadata.listen(self._follow_settings)
        if self._base.authorization is not None:
            self.metadata.listen(self._base.authorization.follow)
        self.metadata.listen(self._base.quotas.follow)
        if self._has_logins:
            self.metadata.listen(self.login_gate.follow)
        self.metadata.listen(self.membership.follow)
        self.metadata.listen(self.peers.follow)
        self.metadata.listen(self.assignment.follow)
        self.metadata.listen(self.replication.following.follow)
        self.metadata.listen(self.growing.follow)
        self.metadata.listen(self.follow_image)
        self.metadata.listen(self.store_memory.follow)
        self.metadata.listen(self.claims.follow)
        self.metadata.listen(self.controller.follow)
        if self.failover.enabled:
            self.metadata.listen(self.failover.watch.follow)
        self.metadata.listen(self.failover.pending.follow)
        self.metadata.listen(self._base.events.follow)

    def _follow_settings(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.broker_configs is not before.broker_configs:
            self._base.settings.apply(after)
            if f"configs/brokers/{self.node_id}" not in after.unreadable:  # else TLS stays as it was
                self.tls.apply(self.config.tls)
            self.server.configure(self.config.socket)
            self.replication.throttles.configure(self.config.replication)
