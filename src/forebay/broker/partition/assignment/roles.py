"""The role of each partition of this broker: it leads, follows, or rests until it is known who leads."""

from __future__ import annotations

from dataclasses import replace

from forebay.broker.broker_time import BrokerTime
from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.closed_partition import follow_fold
from forebay.broker.partition.opening.late_roles import LateRoles
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.unused.strays import is_in_doubt
from forebay.broker.signals import Signal
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState


class Roles:
    def __init__(
        self,
        late_roles: LateRoles,
        metadata: Metadata,
        settings: LiveConfig,
        time: BrokerTime,
        *,
        node_id: int,
    ) -> None:
        self._late_roles = late_roles
        self._metadata = metadata
        self._settings = settings
        self._time = time
        self._node_id = node_id
        self.taken: Signal[Partition, PartitionState] = Signal()
        """A partition leads or follows as this state says: a new role, or a new state in the same role."""
        self.term_begun: Signal[Partition] = Signal()
        """This broker has begun to lead a partition, or leads it in another leader epoch."""
        self.ahead: Signal[Partition, PartitionState] = Signal()
        """The log of a partition has later leader epochs than the store knows of."""

    def take_newest(self, partition: Partition, image: ClusterImage) -> None:
        """Take the role that an image gives to a partition, which it assigns to this broker."""
        if is_in_doubt(image, partition.topic, partition.index):
            self.rest(partition)
            return
        state = image.partition(partition.topic, partition.index)
        assert state is not None
        self.take(partition, image.topics[partition.topic], state)

    def take(self, partition: Partition, topic: TopicImage, state: PartitionState) -> None:
        """Lead or follow, as the state says; closed or open to new messages."""
        if self._late_roles.defers(partition):
            self.rest(partition)
            return
        leads_on = partition.is_leader and partition.leader_epoch == state.leader_epoch
        if not state.unsettled and partition.last_epoch > state.leader_epoch:
            state = replace(state, leader=NO_LEADER, isr=(), unsettled=True)
            self.ahead.send(partition, state)
        if state.unsettled:
            partition.stand_still(state)
        elif state.leader == self._node_id:
            partition.lead(self._node_id, state, self._time.uptime_ms())
        else:
            partition.follow(state)
        self._close_or_open(partition, topic)
        self.taken.send(partition, state)
        if state.leader == self._node_id and not leads_on:
            self.term_begun.send(partition)

    def rest(self, partition: Partition) -> None:
        """Neither lead nor follow: it is unknown who leads."""
        state = PartitionState.in_doubt(partition.index, partition.leader_epoch)
        partition.follow(state)
        self.taken.send(partition, state)

    def _close_or_open(self, partition: Partition, topic: TopicImage) -> None:
        """A partition that is folded, or filled by brokers, takes no messages of clients."""
        storage = self._settings.current.storage
        if topic.record.folding is not None:
            follow_fold(partition, topic, storage, self._time.trusted_ms())
        image = self._metadata.image
        is_filled = topic.name in image.fills or topic.name in image.unreadable.views
        if is_filled != partition.is_filled:
            partition.is_filled = is_filled
            partition.configure(partition.config, storage.decompress_max_bytes)
