"""The partitions that this broker holds, kept in step with the cluster image.

A partition whose log cannot be opened is remembered with the reason: clients that ask for it are told, and
the others are served.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.partition import Partition, append_policy, log_config
from forebay.broker.producer_state import load_producers, save_producers
from forebay.broker.waiters import release
from forebay.config import TopicConfig
from forebay.core.image import ClusterImage, PartitionState, TopicImage
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.checkpoint import TopicPartition
from forebay.storage.epochs import LeaderEpochs

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

_OPENING_THREADS = 4


class Replicas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._disk = broker.disk
        self._data = broker.data
        self._partitions: dict[TopicPartition, Partition] = {}
        self._broken: dict[TopicPartition, StorageError] = {}
        self._deleted: list[str] = []
        """Directories moved out of the way, still to be removed."""

    # -- lookup --------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self._absent(topic, index)
        return partition

    def by_id(self, topic_id: bytes, index: int) -> Partition:
        topic = self._broker.image.topic_names.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        return self.get(topic, index)

    def all(self) -> list[Partition]:
        return list(self._partitions.values())

    def _absent(self, topic: str, index: int) -> KafkaError:
        broken = self._broken.get((topic, index))
        return broken or KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {topic!r} here"
        )

    # -- following the image ---------------------------------------------------------------------------

    def open_all(self, image: ClusterImage) -> None:
        """Open what the image assigns to this broker. Blocks; done before the broker serves."""
        wanted = list(self._assigned(image))
        self._warn_of_strays({(topic.name, state.index) for topic, state in wanted})
        with self._broker.ports.executor(_OPENING_THREADS, "forebay-open") as pool:
            list(pool.map(lambda item: self._open(image, *item), wanted))

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Make, drop and reconfigure partitions after a change of the image."""
        if after.topics is not before.topics:
            self._drop_gone(after)
            for topic, state in self._assigned(after):
                if (topic.name, state.index) not in self._partitions:
                    self._open(after, topic, state)
        if (
            after.topic_configs is not before.topic_configs
            or after.broker_configs is not before.broker_configs
        ):
            self._reconfigure(after)

    def _assigned(self, image: ClusterImage) -> Iterator[tuple[TopicImage, PartitionState]]:
        for topic in image.topics.values():
            for state in topic.partitions:
                if self._broker.node_id in state.replicas:
                    yield topic, state

    def _open(self, image: ClusterImage, topic: TopicImage, state: PartitionState) -> None:
        key = (topic.name, state.index)
        config = self._config(image, topic.name)
        try:
            log_ = self._data.open_log(
                *key, log_config(config), topic_id=topic.topic_id, clock=self._broker.clock
            )
            epochs = LeaderEpochs(self._disk, log_.directory)
            epochs.assign(state.leader_epoch, log_.end_offset)
            producers = load_producers(log_)
        except (OSError, StorageError) as error:
            log.exception("a partition cannot be opened", extra={"partition": f"{topic.name}-{state.index}"})
            self._broken[key] = StorageError(f"partition {state.index} of {topic.name!r}: {error}")
            return
        log_.on_roll = lambda _: save_producers(log_, producers)
        self._broken.pop(key, None)
        partition = self._partitions[key] = Partition(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=state.index,
            leader_epoch=state.leader_epoch,
            log=log_,
            epochs=epochs,
            producers=producers,
            config=config,
            policy=append_policy(config, self._broker.config.storage.decompress_max_bytes),
        )
        partition.enough_replicas = _enough_replicas(config, state)

    def _drop_gone(self, image: ClusterImage) -> None:
        for key, partition in list(self._partitions.items()):
            topic = image.topics.get(partition.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                del self._partitions[key]
                self._drop(partition)
        self._broken = {key: error for key, error in self._broken.items() if key[0] in image.topics}

    def _drop(self, partition: Partition) -> None:
        partition.closed = True
        try:
            self._deleted.append(self._data.delete_log(partition.topic, partition.index, partition.log))
        except (OSError, StorageError):
            log.exception("a deleted partition stays on the disk", extra={"partition": str(partition)})
        release(partition)

    def _reconfigure(self, image: ClusterImage) -> None:
        for partition in self._partitions.values():
            config = self._config(image, partition.topic)
            if config != partition.config:
                partition.configure(config, self._broker.config.storage.decompress_max_bytes)
                state = image.topics[partition.topic].partitions[partition.index]
                partition.enough_replicas = _enough_replicas(config, state)

    def _config(self, image: ClusterImage, topic: str) -> TopicConfig:
        return TopicConfig.resolve(self._broker.config, image.topic_config(topic).overrides)

    def _warn_of_strays(self, wanted: set[TopicPartition]) -> None:
        """Data of topics that the store does not know is left alone: only an administrator may delete it."""
        for topic, index in self._data.partitions():
            if (topic, index) not in wanted:
                log.warning(
                    "a directory belongs to no topic of this cluster; remove it if you do not need it",
                    extra={"directory": self._data.directory(topic, index)},
                )

    # -- housekeeping ----------------------------------------------------------------------------------

    async def remove_deleted(self) -> None:
        paths, self._deleted = self._deleted, []
        for path in paths:
            try:
                await self._broker.in_thread(partial(self._disk.remove_tree, path))
            except OSError as error:
                log.warning(
                    "a deleted partition could not be removed yet",
                    extra={"directory": path, "reason": str(error)},
                )
                self._deleted.append(path)

    def checkpoint(self) -> None:
        """Write down how far the logs have come. Blocks; any thread."""
        partitions = dict(self._partitions)
        self._data.write_checkpoints(
            {key: partition.log for key, partition in partitions.items()},
            {key: partition.high_watermark for key, partition in partitions.items()},
        )

    def close_all(self) -> bool:
        """Close every log; whether all of them were left in order. Blocks."""
        clean = True
        for partition in self._partitions.values():
            partition.closed = True
            try:
                save_producers(partition.log, partition.producers, sync=True)
                partition.log.close()
            except (OSError, StorageError):
                log.exception("a log did not close cleanly", extra={"partition": str(partition)})
                clean = False
        try:
            if self._partitions:
                self.checkpoint()
        except OSError:
            log.exception("no checkpoints were written; the logs are looked at when the broker starts again")
            clean = False
        return clean


def _enough_replicas(config: TopicConfig, state: PartitionState) -> bool:
    return len(state.isr) >= config.insync_replicas_min(len(state.replicas))
