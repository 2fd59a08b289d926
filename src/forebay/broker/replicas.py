"""The partitions that this broker holds, kept in step with the cluster image: which, and in which role.

A partition whose log cannot be opened is remembered with the reason: clients that ask for it are told, and
the others are served. Its checkpoints stay as they are, and its log is checked whenever it is opened next,
however orderly this broker stops. The same holds for directories of partitions that are not this broker's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.partition import Partition
from forebay.broker.producer_state import load_producers, save_producers
from forebay.broker.topic_policy import append_policy, log_config
from forebay.broker.waiters import release
from forebay.config import TopicConfig
from forebay.core.image import ClusterImage, PartitionState, TopicImage
from forebay.errors import ErrorCode, ForebayError, KafkaError, StorageError
from forebay.storage.checkpoint import TopicPartition
from forebay.storage.epochs import LeaderEpochs

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

_OPENING_THREADS = 4
_OPENED_PER_TURN = 16


class Replicas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._disk = broker.disk
        self._data = broker.data
        self._partitions: dict[TopicPartition, Partition] = {}
        self._broken: dict[TopicPartition, StorageError] = {}
        self._unopened: dict[TopicPartition, None] = {}
        """Assigned to this broker, and opened in their turn: making a file takes the loop's time."""
        self._all_open = asyncio.Event()
        self._all_open.set()
        self._deleted: list[str] = []
        """Directories moved out of the way, still to be removed."""

    # -- lookup --------------------------------------------------------------------------------------

    def get(self, topic: str, index: int) -> Partition:
        """A partition that this broker leads; raises KafkaError with a code that sends clients elsewhere."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self._absent(topic, index)
        if not partition.is_leader:
            raise partition.not_leader()
        return partition

    def get_for_certain(self, topic: str, index: int) -> Partition:
        """The same, refused while another broker may have taken its place without this one's knowledge."""
        partition = self.get(topic, index)
        if not self._broker.membership.valid():
            raise partition.not_leader()
        return partition

    def held(self, topic: str, index: int) -> Partition:
        """A partition that this broker has a replica of, whoever leads it."""
        partition = self._partitions.get((topic, index))
        if partition is None:
            raise self._absent(topic, index)
        return partition

    def by_id(self, topic_id: bytes, index: int) -> Partition:
        return self.get(self.name_of(topic_id), index)

    def name_of(self, topic_id: bytes) -> str:
        topic = self._broker.image.topic_names.get(topic_id)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id.hex()}")
        return topic

    def all(self) -> list[Partition]:
        return list(self._partitions.values())

    def damaged(self) -> set[TopicPartition]:
        """Partitions that cannot be opened here, or that lack messages which no crash can have taken."""
        lossy = {key for key, partition in self._partitions.items() if partition.log.report.lacks_messages}
        return lossy | self._broken.keys()

    def _absent(self, topic: str, index: int) -> KafkaError:
        broken = self._broken.get((topic, index))
        if broken is not None:
            return broken
        if self._broker.image.partition(topic, index) is not None:
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"partition {index} of topic {topic!r} is on other brokers; ask for the metadata again",
            )
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {topic!r}"
        )

    # -- following the image ---------------------------------------------------------------------------

    def open_all(self, image: ClusterImage) -> None:
        """Open what the image assigns to this broker. Blocks; done before the broker serves."""
        wanted = list(self._assigned(image))
        self._keep_strays({(topic.name, state.index) for topic, state in wanted})
        with self._broker.ports.executor(_OPENING_THREADS, "forebay-open") as pool:
            opened = list(pool.map(lambda item: self._open(image, *item), wanted))
        for partition, (_, state) in zip(opened, wanted, strict=True):
            if partition is not None:
                self._take_role(partition, state)

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Make, drop and reconfigure partitions after a change of the image."""
        if after.topics is not before.topics:
            self._broker.appends.finish()  # what was appended in one term is written and waits in that term
            self._drop_gone(after)
            for topic, state in self._assigned(after, before):
                partition = self._partitions.get((topic.name, state.index))
                if partition is not None:
                    self._take_role(partition, state)
                else:
                    self._unopened[topic.name, state.index] = None
            if self._unopened:
                self._all_open.clear()
                self._open_some()
            self._broker.appends.finish_soon()  # and tell who waited for the end of that term
        if (
            after.topic_configs is not before.topic_configs
            or after.broker_configs is not before.broker_configs
        ):
            self._reconfigure(after)

    async def all_open(self) -> None:
        """Wait until every partition is there that the image gives this broker."""
        await self._all_open.wait()

    def _open_some(self) -> None:
        """Open a few partitions, as the present image has them, and let the loop serve others meanwhile."""
        image = self._broker.image
        for key in list(self._unopened)[:_OPENED_PER_TURN]:
            del self._unopened[key]
            topic, state = image.topics.get(key[0]), image.partition(*key)
            if not self._is_assigned(image, key) or key in self._partitions:
                continue
            assert topic is not None and state is not None
            partition = self._open(image, topic, state)
            if partition is not None:
                self._take_role(partition, state)
            elif not self._broker.config.cluster.embedded:
                self._broker.background.spawn(
                    self._broker.membership.withdraw({key}), f"leaving the in-sync set of {key[0]}-{key[1]}"
                )
        if self._unopened:
            self._broker.loop.call_soon(self._open_more)
        else:
            self._all_open.set()

    def _open_more(self) -> None:
        self._open_some()
        if self._all_open.is_set():
            self._broker.follow_coordinators()

    def _assigned(
        self, image: ClusterImage, before: ClusterImage | None = None
    ) -> Iterator[tuple[TopicImage, PartitionState]]:
        """What is assigned to this broker: everything, or what may have changed since an image before."""
        for topic in image.topics.values():
            if before is None or before.topics.get(topic.name) is not topic:
                for state in topic.partitions:
                    if self._broker.node_id in state.replicas:
                        yield topic, state

    def _take_role(self, partition: Partition, state: PartitionState) -> None:
        """Lead or follow, as the image says."""
        me = self._broker.node_id
        if state.leader == me:
            partition.lead(me, state, self._broker.uptime_ms())
        else:
            partition.follow(state)
        self._broker.replication.role_taken(partition, state)

    def _open(self, image: ClusterImage, topic: TopicImage, state: PartitionState) -> Partition | None:
        key = (topic.name, state.index)
        config = self._config(image, topic.name)
        try:
            log_ = self._data.open_log(
                *key, log_config(config), topic_id=topic.topic_id, clock=self._broker.clock
            )
            try:
                epochs = LeaderEpochs(self._disk, log_.directory)
                producers = load_producers(log_, epochs)
            except BaseException:
                log_.discard()
                raise
        except (OSError, ForebayError) as error:
            log.exception("a partition cannot be opened", extra={"partition": f"{topic.name}-{state.index}"})
            self._broken[key] = StorageError(f"partition {state.index} of {topic.name!r}: {error}")
            self._data.distrust(*key)
            return None
        self._broken.pop(key, None)
        partition = self._partitions[key] = Partition(
            topic=topic.name,
            topic_id=topic.topic_id,
            index=state.index,
            log=log_,
            epochs=epochs,
            producers=producers,
            config=config,
            policy=append_policy(config, self._broker.config.storage.decompress_max_bytes),
            high_watermark=self._data.high_watermark(*key),
            syncs_alone=self._broker.config.storage.flush_on_ack,
        )
        log_.on_roll = lambda _: save_producers(log_, partition.producers)
        log_.unreadable.on_found = self._count_unreadable
        return partition

    def _count_unreadable(self) -> None:
        self._broker.metrics.unreadable_batches += 1

    def _drop_gone(self, image: ClusterImage) -> None:
        """Partitions of deleted topics, and those that were moved away, are deleted here."""
        for key, partition in list(self._partitions.items()):
            topic = image.topic_by_id(partition.topic_id)
            if topic is None or self._broker.node_id not in topic.partitions[partition.index].replicas:
                del self._partitions[key]
                self._drop(partition)
        self._broken = {key: error for key, error in self._broken.items() if self._is_assigned(image, key)}

    def _is_assigned(self, image: ClusterImage, key: TopicPartition) -> bool:
        state = image.partition(*key)
        return state is not None and self._broker.node_id in state.replicas

    def _drop(self, partition: Partition) -> None:
        partition.close()
        self._broker.replication.dropped(partition)
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

    def _config(self, image: ClusterImage, topic: str) -> TopicConfig:
        return TopicConfig.resolve(self._broker.config, image.topic_config(topic).overrides)

    def _keep_strays(self, wanted: set[TopicPartition]) -> None:
        """Data of topics that the store does not know is left alone: only an administrator may delete it.

        A partition that was moved away while this broker was down leaves its directory too; it may come back.
        """
        for topic, index in self._data.partitions():
            if (topic, index) not in wanted:
                if not self._data.clean:
                    self._data.distrust(topic, index)
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
        self._unopened.clear()
        for partition in self._partitions.values():
            partition.closed = True
            try:
                if partition.log.end_offset:
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
