"""Partitions that nobody has used yet: a single broker with very many does not open them.

They have no directory, no object and no timer here; the cluster image is all that knows them. Whatever looks
one up has it opened (`opening_queue.py`). Not in a cluster: there a missing directory means that a disk was
lost, so every replica has one.

A log that is on the disk is never taken for an unused partition, also if it could not be opened when its turn
came: because the store did not know its topic then, or had something about it that could not be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from forebay.broker.partition.opening.opening_queue import OpeningQueue
from forebay.core.cluster.internal_names import INTERNAL_TOPICS

if TYPE_CHECKING:
    from forebay.broker.live_config import LiveConfig
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.images.topic_image import TopicImage
    from forebay.core.cluster.partition_state import PartitionState
    from forebay.core.topic_partition import TopicPartition
    from forebay.storage.datadir import DataDir

    Assigned = list[tuple[TopicImage, PartitionState]]


class UnusedPartitions:
    def __init__(self, queue: OpeningQueue, settings: LiveConfig, data: DataDir) -> None:
        self._queue = queue
        self._settings = settings
        self._data = data
        self._used: set[TopicPartition] = set()
        """Partitions that may have a log here and were passed over: opened when the image has them."""

    def passed_over(self, keys: Iterable[TopicPartition]) -> None:
        """These may have logs here, and cannot be opened now."""
        self._used.update(keys)

    def needed(self, image: ClusterImage, closed: Assigned) -> Assigned:
        """Those of `closed` that have to be opened before anybody asks for them."""
        config, queue = self._settings.current, self._queue
        if closed and config.cluster.embedded and not queue.leaves_unused:
            count = sum(len(topic.partitions) for topic in image.topics.values())
            queue.leaves_unused = count > config.storage.open_before_ready_max
        if not queue.leaves_unused:
            return closed
        return [
            (topic, state)
            for topic, state in closed
            if state.unsettled
            or (topic.name, state.index) in self._used
            or not _may_stay_unused(image, topic)
        ]

    def open_first(self, image: ClusterImage, assigned: Assigned) -> Assigned:
        """Those that have to be opened when the broker starts: what is needed, and what is on the disk.

        A partition with a checkpoint was used before, also if its directory is gone.
        """
        if not self._settings.current.cluster.embedded:
            return assigned
        here, checkpoints = set(self._data.partitions()), self._data.checkpoints
        needed = self.needed(image, assigned)
        self.passed_over(here.difference((topic.name, state.index) for topic, state in assigned))
        if not self._queue.leaves_unused:
            return assigned
        wanted = {(topic.name, state.index) for topic, state in needed}
        return [
            (topic, state)
            for topic, state in assigned
            if (key := (topic.name, state.index)) in wanted or key in here or checkpoints.knows(key)
        ]


def _may_stay_unused(image: ClusterImage, topic: TopicImage) -> bool:
    """True if nothing but requests for a topic's partitions needs them to be open."""
    return (
        topic.name not in INTERNAL_TOPICS
        and topic.record.folding is None
        and topic.name not in image.fills
        and topic.name not in image.unreadable.views
    )
