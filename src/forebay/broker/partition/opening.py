"""Opening a partition: its log, and what is kept beside it. Blocks: any thread that then hands it over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.broker.partition.partition import Partition
from forebay.broker.partition.producer_replay import load_producers, save_producers
from forebay.broker.partition.topic_policy import append_policy, log_config
from forebay.config import TopicConfig
from forebay.errors import StorageError
from forebay.storage.log.leader_epochs import LeaderEpochs

if TYPE_CHECKING:
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.clock import Clock
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.images.topic_image import TopicImage
    from forebay.core.cluster.partition_state import PartitionState
    from forebay.core.topic_partition import TopicPartition
    from forebay.storage.datadir import DataDir
    from forebay.storage.delays.index import DelayIndexes
    from forebay.storage.disk import Disk

log = logging.getLogger(__name__)


class PartitionOpener:
    """Opens partitions as the image and the settings in force say."""

    def __init__(
        self,
        data: DataDir,
        disk: Disk,
        clock: Clock,
        settings: LiveConfig,
        metrics: Metrics,
        delay_indexes: DelayIndexes,
    ) -> None:
        self._data = data
        self._disk = disk
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._delay_indexes = delay_indexes

    def topic_config(self, image: ClusterImage, topic: str) -> TopicConfig:
        """The topic's settings: its own, and for the rest the broker's."""
        return TopicConfig.resolve(self._settings.current, image.topic_config(topic).overrides)

    def open(self, image: ClusterImage, topic: TopicImage, state: PartitionState) -> Partition | StorageError:
        """The partition, or why it cannot be opened: then its log is checked whenever it is opened next.

        This does not raise, not even over a bug of ours: other partitions are opened beside it, and the
        caller waits for all of them.
        """
        key = (topic.name, state.index)
        try:
            return self._open(key, topic.topic_id, self.topic_config(image, topic.name))
        except Exception as error:
            log.exception("a partition cannot be opened", extra={"partition": f"{topic.name}-{state.index}"})
            self._data.distrust(*key)
            return StorageError(f"partition {state.index} of {topic.name!r}: {error}")

    def _open(self, key: TopicPartition, topic_id: bytes, config: TopicConfig) -> Partition:
        storage = self._settings.current.storage
        log_settings = log_config(config, storage.decompress_max_bytes)
        log_ = self._data.open_log(*key, log_settings, topic_id=topic_id, clock=self._clock)
        notes: list[bool] = []
        try:
            epochs = LeaderEpochs(self._disk, log_.directory)
            producers = load_producers(log_, epochs, on_note=lambda: notes.append(True))
        except BaseException:
            log_.discard()
            raise
        partition = Partition(
            topic=key[0],
            topic_id=topic_id,
            index=key[1],
            log=log_,
            epochs=epochs,
            producers=producers,
            config=config,
            policy=append_policy(config, storage.decompress_max_bytes, key[1]),
            high_watermark=self._data.high_watermark(*key),
            syncs_alone=storage.flush_on_ack,
            has_notes=bool(notes) or self._delay_indexes.exists(log_.directory),
            traffic=self._metrics.topics.of(topic_id),
        )
        log_.on_roll = lambda _: save_producers(log_, partition.producers)
        log_.unreadable.on_found = self._count_unreadable
        return partition

    def _count_unreadable(self) -> None:
        self._metrics.unreadable_batches += 1
