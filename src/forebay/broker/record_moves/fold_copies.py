"""Copies the folded partitions of compacted topics: each leader finds the next one of its own."""

from __future__ import annotations

from typing import TypeAlias

from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.record_moves.copy_source import CopyHost, CopySource
from forebay.broker.record_moves.live_mover import LiveMover
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_folds import Folding
from forebay.core.record_moves.move import mover_id
from forebay.core.topic_partition import TopicPartition

_Key: TypeAlias = tuple[TopicPartition, bytes, int]
"""A partition with its topic's id, and the term in which it is led here."""


class FoldCopies:
    def __init__(self, partitions: PartitionTable, host: CopyHost) -> None:
        self._partitions = partitions
        self._host = host
        self._at_work: dict[_Key, LiveMover] = {}

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        if after.topics is not before.topics:
            self.look()

    def look(self) -> None:
        """Begin to copy what is to be copied by this broker now, as far as that is not under way."""
        for topic in self._host.mover.metadata.image.topics.values():
            folding = topic.record.folding
            if folding is None or folding.next_copy is None:
                continue
            partition = self._partitions.usable.get((topic.name, folding.next_copy))
            if partition is not None and partition.is_leader and partition.topic_id == topic.topic_id:
                self._begin(partition, folding)

    def _begin(self, partition: Partition, folding: Folding) -> None:
        place = (partition.topic, partition.index)
        key = (place, partition.topic_id, partition.leader_epoch)
        if key in self._at_work:
            return
        source = CopySource(partition, self._host)
        mover = self._at_work[key] = LiveMover(
            _mover_id(partition, folding),
            partition.leader_epoch,
            source,
            self._host.mover,
            wanted=lambda: source.is_current,
            rested=lambda: self._rested(key),
            build=source.build,
        )
        mover.wake()

    def _rested(self, key: _Key) -> None:
        self._at_work.pop(key, None)


def _mover_id(partition: Partition, folding: Folding) -> str:
    """Another one for each fold: a partition of this number may come again, and be folded again."""
    return mover_id("fold", f"{partition.topic_id.hex()}:{partition.index}:{folding.closed_ms}")
