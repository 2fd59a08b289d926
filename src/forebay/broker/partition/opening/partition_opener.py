"""Opening a partition: its log, and what is kept beside it. Blocks: any thread that then hands it over."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from forebay.broker.partition.opening.opening_again import OpeningRefused
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.producer_replay import load_producers, save_producers
from forebay.broker.partition.topic_policy import append_policy, log_config
from forebay.config import TopicConfig
from forebay.errors import StorageError
from forebay.storage.log.leader_epochs import LeaderEpochs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from forebay.broker.live_config import LiveConfig
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.clock import Clock
    from forebay.config import BrokerConfig
    from forebay.core.cluster.image import ClusterImage, ConfigImage
    from forebay.core.cluster.images.topic_image import TopicImage
    from forebay.core.cluster.partition_state import PartitionState
    from forebay.core.partition.batch_rules import AppendPolicy
    from forebay.core.topic_partition import TopicPartition
    from forebay.storage.datadir import DataDir
    from forebay.storage.delays.index import DelayIndexes
    from forebay.storage.disk import Disk
    from forebay.storage.log.config import LogConfig
    from forebay.storage.log.files import LogFiles

log = logging.getLogger(__name__)

_SYNC_TRIES = 3
"""Snapshots of producers that may fail to be synced, one after the other, before deletion waits for none."""


class _Resolved(NamedTuple):
    """Settings, translated for the parts of a partition. Partitions with the same settings share them."""

    broker: BrokerConfig
    own: ConfigImage
    config: TopicConfig
    log_config: LogConfig
    policy: AppendPolicy | None


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
        sync_soon: Callable[[Iterable[LogFiles]], None],
    ) -> None:
        self._data = data
        self._sync_soon = sync_soon
        self._disk = disk
        self._clock = clock
        self._settings = settings
        self._metrics = metrics
        self._delay_indexes = delay_indexes
        self._last: _Resolved | None = None
        """The settings that were resolved last: mostly the next partition has the same."""

    def topic_config(self, image: ClusterImage, topic: str) -> TopicConfig:
        """The topic's settings: its own, and for the rest the broker's."""
        return self._resolve(image, topic).config

    def _resolve(self, image: ClusterImage, topic: str) -> _Resolved:
        broker, own, last = self._settings.current, image.topic_config(topic), self._last
        if last is not None and last.broker is broker and last.own is own:
            return last
        config, max_bytes = TopicConfig.resolve(broker, own.overrides), broker.storage.decompress_max_bytes
        # Those of topics that take delays differ by the partition's index.
        policy = None if config.delay_enable else append_policy(config, max_bytes, 0)
        self._last = _Resolved(broker, own, config, log_config(config, max_bytes), policy)
        return self._last

    def open(self, image: ClusterImage, topic: TopicImage, state: PartitionState) -> Partition | StorageError:
        """The partition, or why it cannot be opened: then its log is checked whenever it is opened next.

        This does not raise, not even over a bug: other partitions are opened beside it, and the
        caller waits for all of them.
        """
        key = (topic.name, state.index)
        try:
            first_offset = topic.record.first_offset(state.index)
            return self._open(key, topic.topic_id, self._resolve(image, topic.name), first_offset)
        except Exception as error:
            log.exception("a partition cannot be opened", extra={"partition": f"{topic.name}-{state.index}"})
            self._data.distrust(*key)
            by_system = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
            kind = OpeningRefused if by_system else StorageError
            return kind(f"partition {state.index} of {topic.name!r}: {error}")

    def _open(
        self, key: TopicPartition, topic_id: bytes, resolved: _Resolved, first_offset: int
    ) -> Partition:
        storage, config = resolved.broker.storage, resolved.config
        log_ = self._data.open_log(
            *key, resolved.log_config, topic_id=topic_id, clock=self._clock, first_offset=first_offset
        )
        log_.unreadable.on_found = self._count_unreadable
        notes: list[bool] = []
        is_new = log_.report.in_new_directory
        try:
            epochs = LeaderEpochs(self._disk, log_.directory, is_new=is_new)
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
            policy=resolved.policy or append_policy(config, storage.decompress_max_bytes, key[1]),
            high_watermark=self._data.high_watermark(*key),
            syncs_alone=storage.flush_on_ack,
            has_notes=bool(notes) or (not is_new and self._delay_indexes.exists(log_.directory)),
            traffic=self._metrics.topics.of(topic_id),
        )
        log_.on_roll = lambda _: _rolled(partition)
        log_.keeps_batches = lambda begin: self._keeps_batches(partition, begin)
        return partition

    def _count_unreadable(self) -> None:
        self._metrics.unreadable_batches += 1

    def _keeps_batches(self, partition: Partition, begin: int) -> bool:
        """True if batches before an offset must not be deleted before the log is synced, and with it a file
        of its epochs, or the snapshot of its producers: nothing else would tell of them."""
        log_ = partition.log
        if log_.offline_for_good:
            return True  # what is in memory may not be what the log has
        epoch_waits = begin >= log_.recovery_point and partition.epochs.is_last_unwritten()
        if not epoch_waits and (log_.tells_producers_before(begin) or not _producers_wait(partition)):
            return False
        log_.expect_new_file()
        self._sync_soon([log_.files])
        return True


def _producers_wait(partition: Partition) -> bool:
    """True if a snapshot waits for the next sync. One that is missing or was damaged is made again.

    Where that fails, because the disk is full, or none can be synced, deletion goes before what is known of
    deleted batches.
    """
    log_ = partition.log
    if log_.failed_snapshots >= _SYNC_TRIES:
        return False  # also in a log that closes segments all the time: one always waits there
    if log_.has_unsynced_snapshot or not log_.is_written:
        return True
    return save_producers(log_, partition.producers)


def _rolled(partition: Partition) -> None:
    """A segment was closed, and the next one begun."""
    save_producers(partition.log, partition.producers)
    if partition.remote is not None and partition.remote.on_segment_closed is not None:
        partition.remote.on_segment_closed(partition)
