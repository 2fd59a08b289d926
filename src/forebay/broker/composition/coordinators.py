"""The coordinators: of groups, of transactions, of the state of share groups, of moves."""

from __future__ import annotations

from forebay.broker.cluster.peers import Peers
from forebay.broker.cluster.topic_changes import TopicChanges
from forebay.broker.composition.foundations import Foundations
from forebay.broker.composition.local_partitions import LocalPartitions
from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.host import CoordinatorHost
from forebay.broker.coordinators.markers import MarkerAppends, MarkerWriter
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.broker.coordinators.share_group_effects import ShareGroupEffects
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.fetch.end_offsets import EndOffsets
from forebay.broker.moves.journal import MoveJournal
from forebay.broker.worker_threads import WorkerThreads


class Coordinators:
    def __init__(
        self, base: Foundations, local: LocalPartitions, peers: Peers, topic_changes: TopicChanges
    ) -> None:
        settings, metadata, node_id = base.settings, base.metadata, base.node_id
        self.host = host = CoordinatorHost(
            node_id=node_id,
            metadata=metadata,
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
        self.producer_ids = ProducerIds(base.store, metadata, base.data, base.workers)
        self.marker_appends = MarkerAppends(local.write_cycle, local.table, base.time)
        markers = MarkerWriter(
            self.marker_appends, peers, metadata, local.write_cycle, base.loop, node_id=node_id
        )
        end_offsets = EndOffsets(metadata, local.table, peers, local.delays, node_id=node_id)
        self.share_states = ShareStates(host, settings, peers)
        self.move_journal = MoveJournal(host, peers)
        share_effects = ShareGroupEffects(self.share_states, end_offsets.of, base.loop)
        self.groups = Groups(
            host, settings, share_effects, visibility=base.authorization, entropy=base.ports.entropy
        )
        self.transactions = Transactions(host, settings, peers, self.producer_ids, markers)
