"""Removes folded partitions whose time is over. Their leaders do it, beginning with the last partition."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from forebay.broker.partition.closed_partition import is_settled
from forebay.core.cluster.image_changes import PartitionDeleted
from forebay.core.cluster.topics.fewer_partitions import remove_closed
from forebay.errors import KafkaError

if TYPE_CHECKING:
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.record_moves.fold_copies import FoldCopies
    from forebay.broker.upkeep.sequence_handover import SequenceHandover
    from forebay.coordination.metadata import Metadata
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.images.topic_image import TopicImage

log = logging.getLogger(__name__)


class HandsOver(Protocol):
    """Has what folded partitions hand over made, if there are any."""

    def has_copies(self, image: ClusterImage) -> bool: ...
    @property
    def fold_copies(self) -> FoldCopies: ...
    @property
    def sequence_handover(self) -> SequenceHandover: ...


class FoldedPartitions:
    def __init__(
        self,
        partitions: PartitionTable,
        metadata: Metadata,
        settings: LiveConfig,
        time: BrokerTime,
        handing_over: HandsOver,
        *,
        node_id: int,
    ) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._settings = settings
        self._time = time
        self._handing_over = handing_over
        self._reasons: dict[bytes, str] = {}
        """Why partitions of a topic stay, as it was last logged."""
        self._looked_at: Mapping[str, TopicImage] | None = None
        self._folded: list[TopicImage] = []
        self._node_id = node_id

    async def remove_over(self) -> None:
        """Take away what is over and at the end of its topic. What lies before it comes when it is last."""
        folded = self._folded_topics()
        if not folded:
            return
        if self._handing_over.has_copies(self._metadata.image):
            self._handing_over.fold_copies.look()
        over: dict[bytes, dict[int, int]] = {}
        for name, index in ((topic.name, state.index) for topic in folded for state in topic.partitions):
            partition = self._partitions.usable.get((name, index))
            if partition is not None and partition.fold is not None and self._is_over(partition):
                over.setdefault(partition.topic_id, {})[partition.index] = partition.log.end_offset
        for topic_id, ends in over.items():
            await self._remove(topic_id, ends)

    def _folded_topics(self) -> list[TopicImage]:
        """The topics with closed partitions. They are looked for when topics have changed."""
        topics = self._metadata.image.topics
        if topics is not self._looked_at:
            self._looked_at = topics
            self._folded = [topic for topic in topics.values() if topic.record.folding is not None]
        return self._folded

    def _is_over(self, partition: Partition) -> bool:
        """True if it may be removed: it is empty and nobody resends what it had, or its time has come.

        A copied partition need not be empty: all of its records are in others.
        """
        fold, log_ = partition.fold, partition.log
        if fold is None or fold.is_returning or partition.closed or not is_settled(partition):
            return False
        now_ms = self._time.trusted_ms()
        grace_ms = self._settings.current.storage.fold_grace_ms
        if fold.is_copied and partition.config.compacted:
            return now_ms >= max(fold.closed_ms + grace_ms, fold.drop_ms or 0)
        if fold.drop_ms is not None and now_ms >= fold.drop_ms:
            return True
        if partition.remote is not None and not partition.remote.known:
            return False
        is_empty = partition.start_offset == log_.end_offset and not len(partition.producers.transactions)
        return is_empty and now_ms >= fold.closed_ms + grace_ms

    async def _remove(self, topic_id: bytes, ends: dict[int, int]) -> None:
        topic = self._metadata.image.topic_by_id(topic_id)
        remove = partial(remove_closed, topic_id=topic_id, node_id=self._node_id)
        changes = remove(self._metadata.image, over=ends)
        going = [each.state.index for each in changes if isinstance(each, PartitionDeleted)]
        if topic is None or not going:
            return
        try:
            for index in going:
                await self._handing_over.sequence_handover.hand_over(
                    topic, self._partitions.get(topic.name, index)
                )
            # No others, whatever the metadata says by now: their numbers were not handed over.
            image = await self._metadata.change(partial(remove, over={index: ends[index] for index in going}))
        except KafkaError as error:
            if self._reasons.get(topic_id) != error.message:
                self._reasons[topic_id] = error.message
                log.info(
                    "folded partitions stay for now", extra={"topic": topic.name, "reason": error.message}
                )
            return
        self._reasons.pop(topic_id, None)
        left = image.topic_by_id(topic_id)
        if left is not None:
            log.info(
                "folded partitions are gone",
                extra={"topic": left.name, "before": len(topic.partitions), "now": len(left.partitions)},
            )
