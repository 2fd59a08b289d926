"""The stored record of a topic, and the topic with its partitions in an image."""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.cluster.images.topic_folds import Folding, Stop
from forebay.core.cluster.partition_state import NO_LEADER, PartitionState
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass


class Adopted(NamedTuple):
    """Where a partition goes on whose messages were in the object store before its topic was created here."""

    first_offset: int
    """Everything below is in the object store, or was deleted. No log here begins earlier."""
    leader_epoch: int
    """Of the first leader here: above those of all leaders that have written to the object store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """The stored record of a topic."""

    name: str
    topic_id: bytes
    assignment: tuple[tuple[int, ...], ...]
    """The replicas of each partition, as assigned when the partition was created."""
    folding: Folding | None = None
    """Which partitions are folded into which others; None if none are."""
    restored: int = 0
    """The last restore of the store before the partitions were created: see `PartitionState.restored`."""
    adopted: tuple[Adopted, ...] = ()
    """Of the first partitions, if the topic was restored from the object store; empty for other topics."""

    def first_offset(self, index: int) -> int:
        """Where the log of a partition begins."""
        return self.adopted[index].first_offset if index < len(self.adopted) else 0

    def initial_state(self, index: int) -> PartitionState:
        """The state of a new partition."""
        first_epoch = self.adopted[index].leader_epoch if index < len(self.adopted) else 0
        return PartitionState.initial(index, self.assignment[index], self.restored, first_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    record: TopicRecord
    revision: int
    """The mod revision of the topic's key."""

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].target)

    def leader_of(self, index: int) -> int:
        """The broker that leads a partition; raises KafkaError if none does."""
        leader = self.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.name}-{index} has no leader now")
        return leader

    @property
    def closed_from(self) -> int:
        """The first partition that is closed, because it is folded; the number of partitions if none is."""
        count, folding = len(self.partitions), self.record.folding
        return count if folding is None else folding.closed_from(count)

    def folded_into(self, index: int) -> Stop | None:
        """The partition that takes the messages for a closed or removed one; None for others."""
        return next((stop for stop in self.stops(index) if stop.generation is not None), None)

    def stops(self, index: int) -> tuple[Stop, ...]:
        """The partitions that may hold messages sent for this one; empty if unknown."""
        folding = self.record.folding
        every = (Stop(index, None),) if folding is None else folding.stops(index)
        return tuple(stop for stop in every if 0 <= stop.partition < len(self.partitions))

    def path(self, index: int) -> tuple[int, ...]:
        """Like `stops`, but only the indexes."""
        return tuple(stop.partition for stop in self.stops(index))
