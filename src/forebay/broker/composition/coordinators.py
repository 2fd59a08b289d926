"""The coordinators: of groups, of transactions, of the state of share groups, of moves.

Each is made when it is first asked for, or when there is the internal topic that it keeps its state on.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from forebay.broker.coordinators.host import CoordinatorHost
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.worker_threads import WorkerThreads
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.cluster.peers.peers import Peers
    from forebay.broker.cluster.topic_changes import TopicChanges
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions
    from forebay.broker.coordinators.groups import Groups
    from forebay.broker.coordinators.markers import MarkerAppends
    from forebay.broker.coordinators.share_coordinator import ShareStates
    from forebay.broker.coordinators.transactions import Transactions
    from forebay.broker.record_moves.journal import MoveJournal
    from forebay.core.cluster.image import ClusterImage

_PARTS = "forebay.broker.coordinators"
TOPICS = {
    "share_states": "__share_group_state",
    "move_journal": "__forebay_moves",
    "groups": "__consumer_offsets",
    "transactions": "__transaction_state",
}
"""In the order in which they are given a new image."""

_MAKE_AGAIN_S = 1.0


class Coordinators:
    def __init__(
        self, base: Foundations, local: LocalPartitions, peers: Peers, topic_changes: TopicChanges
    ) -> None:
        self._base = base
        self._local = local
        self._peers = peers
        self.host = CoordinatorHost(
            node_id=base.node_id,
            metadata=base.metadata,
            partitions=local.table,
            topic_changes=topic_changes,
            write_cycle=local.write_cycle,
            lease=base.lease,
            readers=WorkerThreads(base.loop, base.read_pool),
            background=base.background,
            metrics=base.metrics,
            time=base.time,
            loop=base.loop,
        )
        self.producer_ids = ProducerIds(base.store, base.metadata, base.data, base.workers)
        self._is_closed = False

    @cached_property
    def groups(self) -> Groups:
        self._require_running()
        base, local = self._base, self._local
        end_offsets = load("forebay.broker.fetch.end_offsets:EndOffsets")(
            base.metadata, local.table, self._peers, local.delays, node_id=base.node_id
        )
        share_effects = load(f"{_PARTS}.share_group_effects:ShareGroupEffects")(
            lambda: self.share_states, end_offsets.of, base.loop
        )
        return load(f"{_PARTS}.groups:Groups")(
            self.host,
            base.settings,
            share_effects,
            visibility=base.authorization,
            entropy=base.ports.entropy,
        )

    @cached_property
    def transactions(self) -> Transactions:
        self._require_running()
        base = self._base
        markers = load(f"{_PARTS}.markers:MarkerWriter")(
            self.marker_appends,
            self._peers,
            base.metadata,
            self._local.write_cycle,
            base.loop,
            node_id=base.node_id,
        )
        return load(f"{_PARTS}.transactions:Transactions")(
            self.host, base.settings, self._peers, self.producer_ids, markers
        )

    @cached_property
    def marker_appends(self) -> MarkerAppends:
        return load(f"{_PARTS}.markers:MarkerAppends")(
            self._local.write_cycle, self._local.table, self._base.time
        )

    @cached_property
    def share_states(self) -> ShareStates:
        self._require_running()
        return load(f"{_PARTS}.share_coordinator:ShareStates")(self.host, self._base.settings, self._peers)

    @cached_property
    def move_journal(self) -> MoveJournal:
        self._require_running()
        return load("forebay.broker.record_moves.journal:MoveJournal")(self.host, self._peers)

    # -- what all of them do ---------------------------------------------------------------------------

    def follow_image(self, before: ClusterImage, after: ClusterImage) -> None:
        for part in self._in_use():
            part.follow(before, after)

    def follow(self) -> None:
        """Begin or end to coordinate partitions, as this broker leads them now."""
        for part in self._in_use():
            part.coordinator.follow()

    def close(self) -> None:
        self._is_closed = True
        for name in [name for name in TOPICS if name in vars(self)]:
            self._made(name).coordinator.close()
        if "transactions" in vars(self):
            self.transactions.close()

    def _require_running(self) -> None:
        """Raises KafkaError when all are closed: one that was made now would never end."""
        if self._is_closed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker is stopping; ask another")

    def _in_use(self) -> list[Groups | Transactions | ShareStates | MoveJournal]:
        topics = self._base.metadata.image.topics
        found = []
        for name, topic in TOPICS.items():
            if name in vars(self):
                found.append(self._made(name))
            elif topic in topics and not self._is_closed:
                try:
                    found.append(self._made(name))
                except Exception as error:  # for want of a file descriptor, say: the others are followed
                    self._base.background.failed(f"making the coordinators of {topic}", error)
                    self._base.loop.call_later(_MAKE_AGAIN_S, self.follow)
        return found

    def _made(self, name: str) -> Groups | Transactions | ShareStates | MoveJournal:
        part: Groups | Transactions | ShareStates | MoveJournal = getattr(self, name)
        return part
