"""Parts that only some brokers need.

Each is made, and its modules are imported, when it is first asked for: by a request, by an image of the
cluster in which there is something for it to do, or by the role of a partition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from forebay.broker.background import RunWhenNeeded
from forebay.broker.composition.optional.remote_storage import RemoteStorage
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import load

if TYPE_CHECKING:
    from contextlib import ExitStack

    from forebay.broker.authentication.gate import LoginGate
    from forebay.broker.authentication.logins import Logins
    from forebay.broker.cluster.controller import Controller
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.cluster.topic_changes import TopicChanges
    from forebay.broker.composition.coordinators import Coordinators
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions
    from forebay.broker.composition.optional.delegation_tokens import LazyDelegationTokens
    from forebay.broker.composition.optional.shares import Shares
    from forebay.broker.composition.optional.tiers import Tiers
    from forebay.broker.coordinators.groups import Groups
    from forebay.broker.coordinators.share_coordinator import ShareStates
    from forebay.broker.coordinators.transactions import Transactions
    from forebay.broker.delays.service import DelayService
    from forebay.broker.fetch.cold_reads import ColdReads
    from forebay.broker.fetch.positions import Positions
    from forebay.broker.fetch.view_offsets import ViewOffsets
    from forebay.broker.folds.takers import BatchTakers
    from forebay.broker.handlers.describe_disk import DiskReport
    from forebay.broker.net.connection import Connection
    from forebay.broker.net.dispatch import Dispatcher
    from forebay.broker.partition.partition import Partition
    from forebay.broker.produce.record_checks import Examiner
    from forebay.broker.record_moves.copy_appends import CopyAppends
    from forebay.broker.record_moves.fold_copies import FoldCopies
    from forebay.broker.record_moves.journal import MoveJournal
    from forebay.broker.shares.dead_letter_watch import DeadLetterWatch
    from forebay.broker.shares.dead_letters.circles import CircleCheck
    from forebay.broker.shares.requests.service import ShareService
    from forebay.broker.tls.setting_changes import TlsSettingChanges
    from forebay.broker.upkeep.sequence_handover import SequenceHandover
    from forebay.broker.views.creation import ViewCreation
    from forebay.broker.views.filters import ViewFilters
    from forebay.broker.views.materializing import ViewFilling
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.partition_state import PartitionState

_OPTIONAL = "forebay.broker.composition.optional"


class OptionalParts:
    """The base of `Node`, which sets the parts that these are made of."""

    _base: Foundations
    _dispatcher: Dispatcher
    local: LocalPartitions
    peers: Peers
    topic_changes: TopicChanges
    coordinators: Coordinators
    controller: Controller
    cold_reads: ColdReads
    examiner: Examiner

    _has_ended = False
    """True once `end_services` was called: what would be made later, nobody would end."""
    _has_delays = False
    """True once a partition was seen that takes delayed messages, or has taken some."""

    def has(self, part: str) -> bool:
        """True if the part was made."""
        return part in vars(self)

    # -- coordinators ----------------------------------------------------------------------------------

    @property
    def groups(self) -> Groups:
        return self.coordinators.groups

    @property
    def transactions(self) -> Transactions:
        return self.coordinators.transactions

    @property
    def share_states(self) -> ShareStates:
        return self.coordinators.share_states

    @property
    def move_journal(self) -> MoveJournal:
        return self.coordinators.move_journal

    # -- logins ----------------------------------------------------------------------------------------

    @cached_property
    def logins(self) -> Logins:
        return load(f"{_OPTIONAL}.logins:logins")(self._base)

    @cached_property
    def login_gate(self) -> LoginGate:
        return load("forebay.broker.authentication.gate:LoginGate")(
            self.logins, self._dispatcher, self._base.loop
        )

    @cached_property
    def tokens(self) -> LazyDelegationTokens:
        return load(f"{_OPTIONAL}.delegation_tokens:LazyDelegationTokens")(self._base, self.logins)

    # -- share groups, and the moves of records --------------------------------------------------------

    @cached_property
    def _shares(self) -> Shares:
        self._require_running()
        return load(f"{_OPTIONAL}.shares:Shares")(
            self._base,
            self.local,
            self.coordinators,
            peers=self.peers,
            takers=self.takers,
            topic_changes=self.topic_changes,
            cold_reads=self.cold_reads,
            examiner=self.examiner,
            remote_reads=self.remote.reads,
            remote_offsets=self.remote.offsets,
        )

    @property
    def shares(self) -> ShareService:
        return self._shares.service

    @property
    def dead_letter_watch(self) -> DeadLetterWatch:
        return self._shares.dead_letter_watch

    @cached_property
    def takers(self) -> BatchTakers:
        base = self._base
        return load("forebay.broker.folds.takers:BatchTakers")(
            self.local.table,
            base.metadata,
            load("forebay.broker.folds.handovers:Handovers")(self.peers, base.background),
            node_id=base.node_id,
            now_ms=base.time.now_ms,
        )

    @cached_property
    def circles(self) -> CircleCheck:
        base = self._base
        return load("forebay.broker.shares.dead_letters.circles:CircleCheck")(
            self.groups, self.peers, base.metadata, base.time, node_id=base.node_id
        )

    @cached_property
    def copy_appends(self) -> CopyAppends:
        return load(f"{_OPTIONAL}.fold_copies:copy_appends")(self._base, self.local, self.peers)

    @cached_property
    def fold_copies(self) -> FoldCopies:
        return load(f"{_OPTIONAL}.fold_copies:fold_copies")(
            self._base, self.local, self.copy_appends, self._shares
        )

    @cached_property
    def sequence_handover(self) -> SequenceHandover:
        return load(f"{_OPTIONAL}.fold_copies:sequence_handover")(self._base, self.local, self.peers)

    # -- tiered storage --------------------------------------------------------------------------------

    @cached_property
    def tiers(self) -> Tiers:
        self._require_running()
        return load(f"{_OPTIONAL}.tiers:Tiers")(self._base, self.local, self.controller)

    @cached_property
    def remote(self) -> RemoteStorage:
        return RemoteStorage(self._base.settings, lambda: self.tiers)

    def _copy_segments(self, partition: Partition) -> None:
        if partition.remote is not None:
            self._contain("copying segments", lambda: self.remote.copy_segments(partition))

    # -- views and delays ------------------------------------------------------------------------------

    @cached_property
    def filters(self) -> ViewFilters:
        self._require_running()
        return load(f"{_OPTIONAL}.views:view_filters")(self._base)

    @cached_property
    def filling(self) -> ViewFilling:
        self._require_running()
        return load(f"{_OPTIONAL}.views:view_filling")(self._base, self.local, self.peers)

    @cached_property
    def view_creation(self) -> ViewCreation:
        base = self._base
        return load("forebay.broker.views.creation:ViewCreation")(
            self.topic_changes, base.settings, base.workers
        )

    @property
    def views_by_time(self) -> Callable[[], ViewOffsets]:
        return lambda: self.view_offsets

    @cached_property
    def view_offsets(self) -> ViewOffsets:
        base = self._base
        return load("forebay.broker.fetch.view_offsets:ViewOffsets")(
            self.filters, base.metadata, base.loop, self.remote.reads
        )

    @cached_property
    def delays(self) -> DelayService:
        self._require_running()
        return load(f"{_OPTIONAL}.delays:delay_service")(self._base, self.local)

    # -- what single requests need ---------------------------------------------------------------------

    @cached_property
    def tls_changes(self) -> TlsSettingChanges:
        base = self._base
        return load("forebay.broker.tls.setting_changes:TlsSettingChanges")(
            base.node_id, base.settings, base.metadata, base.tls
        )

    @cached_property
    def disk_report(self) -> DiskReport:
        base = self._base
        return load("forebay.broker.handlers.describe_disk:DiskReport")(
            node_id=base.node_id,
            data=base.data,
            store=base.store,
            metadata=base.metadata,
            partitions=self.local.table,
            workers=base.workers,
        )

    @cached_property
    def positions(self) -> Positions:
        base, local = self._base, self.local
        return load("forebay.broker.fetch.positions:Positions")(
            local.table,
            local.offsets_by_time,
            local.delays,
            ages_max=lambda: base.settings.current.node.metrics_lag_ages_max,
        )

    # -- what has them made ----------------------------------------------------------------------------

    def _require_running(self) -> None:
        if self._has_ended:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "this broker is stopping; ask another")

    def _contain(self, doing: str, work: Callable[[], None]) -> None:
        """A part that cannot be made now, for want of a file descriptor, say, must not stop the others."""
        try:
            work()
        except Exception as error:
            self._base.background.failed(doing, error)

    def follow_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Tell the parts of a new image that were made, and make those that have something to do in it."""
        self.coordinators.follow_image(before, after)
        if self.has("_shares"):
            self.shares.shares.follow(before, after)
        if self.has("filters"):
            self.filters.follow(before, after)
        elif before.view_names and after.view_names is not before.view_names:
            self._contain("following views", lambda: self.filters.follow(before, after))
        if after.topics is not before.topics and self.has_copies(after):
            self._contain("copying partitions", lambda: self.fold_copies.look())

    @staticmethod
    def has_copies(image: ClusterImage) -> bool:
        """True if partitions of compacted topics are being folded."""
        foldings = (topic.record.folding for topic in image.topics.values())
        return any(folding is not None and folding.next_copy is not None for folding in foldings)

    def role_taken(self, partition: Partition, state: PartitionState) -> None:
        if partition.delayed_messages is not None or self.has("delays"):
            self._contain("delaying messages", lambda: self.delays.role_taken(partition, state))
            self._delay(partition)
        self._copy_segments(partition)
        if partition.is_filled:
            self._contain("filling views", lambda: self.filling.role_taken(partition, state))
            self.view_filling.look()

    def configured(self, partition: Partition) -> None:
        self._delay(partition)
        self._copy_segments(partition)

    def _delay(self, partition: Partition) -> None:
        """Have delayed messages delivered from now on, if the partition may have some."""
        if partition.delayed_messages is not None:
            self._has_delays = True
            self.delaying.look()

    def dropped(self, partition: Partition) -> None:
        if self.has("delays"):
            self.delays.dropped(partition)
        if self.has("tiers"):
            self.tiers.service.dropped(partition)

    def holds_records(self, connection: Connection) -> bool:
        return self.has("_shares") and self.shares.holds_records(connection)

    def connection_closed(self, connection: Connection) -> None:
        if self.has("_shares"):
            self.shares.connection_closed(connection)

    # -- running and ending ----------------------------------------------------------------------------

    @cached_property
    def delaying(self) -> RunWhenNeeded:
        return RunWhenNeeded(lambda: self._has_delays, lambda: self.delays.run(), self._base.loop)

    @cached_property
    def tiering(self) -> RunWhenNeeded:
        return RunWhenNeeded(lambda: self.remote.has_store, lambda: self.tiers.service.run(), self._base.loop)

    @cached_property
    def view_filling(self) -> RunWhenNeeded:
        metadata = self._base.metadata
        return RunWhenNeeded(lambda: bool(metadata.image.fills), lambda: self.filling.run(), self._base.loop)

    @cached_property
    def dead_letter_watching(self) -> RunWhenNeeded:
        return RunWhenNeeded(
            lambda: "share_states" in vars(self.coordinators),
            lambda: self.dead_letter_watch.run(),
            self._base.loop,
        )

    def end_services(self) -> None:
        """End the work that parts began because the image, or a client, had them do it."""
        self._has_ended = True
        if self.has("_shares"):
            self.shares.shares.close()
        if self.has("delays"):
            self.delays.close()
        if self.has("filling"):
            self.filling.close()
        if self.has("tiers"):
            self.tiers.close()
        if self.has("filters"):
            self.filters.stop()
        self.coordinators.close()

    def end_own_threads(self, closing: ExitStack) -> None:
        """Have threads ended when others are: blocks until the work under way has ended."""
        if self.has("delays"):
            closing.callback(self.delays.end_threads)
        if self.has("filling"):
            closing.callback(self.filling.end_threads)
        if self.has("filters"):
            closing.callback(self.filters.close)

    def end_late_threads(self, closing: ExitStack) -> None:
        """Like `end_own_threads`, for work that may take long."""
        if self.has("tiers"):
            self.tiers.end_threads(closing)
        if self.has("logins"):
            closing.callback(self.logins.close)
        if self.has("tokens"):
            closing.callback(self.tokens.close)

    @property
    def leaves_threads(self) -> bool:
        """True if a thread was given up, because it takes long."""
        return (self.has("filters") and self.filters.is_late) or (self.has("tiers") and self.tiers.is_late)
