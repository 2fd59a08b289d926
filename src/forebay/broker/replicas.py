"""The partitions that this broker holds, kept in step with the cluster image: which, and in which role.

A partition whose log cannot be opened is remembered with the reason: clients that ask for it are told, and
the others are served. Its checkpoints stay as they are, and its log is checked whenever it is opened next,
however orderly this broker stops. The same holds for directories of partitions that are not this broker's.

Partitions are opened in a thread, and the log of one that follows can be lent to a thread (`lend`): making
files, checking a log after a crash and cutting it take longer than the loop may stand still. A partition
that is being opened, or whose log is lent, is nobody's to use: look-ups refuse it, it is not among `all`,
and it is `closed` for those who still hold it. What the image says of it meanwhile is done once it is back:
it takes the role that it has by then, or is deleted. Until then no other of its name is opened.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from forebay.broker.partition import Partition
from forebay.broker.partition_opening import open_partition, topic_config
from forebay.broker.producer_state import save_producers
from forebay.broker.side_jobs import SideJobs
from forebay.broker.strays import sort_out_strays
from forebay.broker.waiters import release
from forebay.core.image import ClusterImage, PartitionState, TopicImage
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.checkpoint import TopicPartition

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

_OPENING_THREADS = 4
_OPENED_AT_ONCE = 16
_LOG_THREADS = 2
_WITHDRAW_AGAIN_S = 1.0

T = TypeVar("T")
_Opened = list[tuple[TopicImage, PartitionState, Partition | StorageError]]


class Replicas:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._disk = broker.disk
        self._data = broker.data
        self._partitions: dict[TopicPartition, Partition] = {}
        self._broken: dict[TopicPartition, StorageError] = {}
        self._jobs = SideJobs(broker.loop, broker.ports.executor(_LOG_THREADS, "forebay-logs"))
        self._lent: dict[TopicPartition, Partition] = {}
        """Followed here, and a thread works on their logs."""
        self._unopened: dict[TopicPartition, None] = {}
        """Assigned to this broker, and opened in their turn, a few at a time."""
        self._opening = False
        self._all_open = asyncio.Event()
        self._all_open.set()
        self._deleted: list[str] = []
        """Directories moved out of the way, still to be removed."""
        self._listeners: list[Callable[[], None]] = []

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
        """Those that may be used at this moment."""
        return list(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions) + len(self._lent)

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
                f"partition {index} of topic {topic!r} is on other brokers, or not ready here; "
                "ask for the metadata again",
            )
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {topic!r}"
        )

    # -- following the image ---------------------------------------------------------------------------

    def open_all(self, image: ClusterImage) -> None:
        """Open what the image assigns to this broker. Blocks; done before the broker serves."""
        wanted = list(self._assigned(image))
        self._deleted += sort_out_strays(self._data, image, {(t.name, state.index) for t, state in wanted})
        with self._broker.ports.executor(_OPENING_THREADS, "forebay-open") as pool:
            opened = list(pool.map(lambda item: open_partition(self._broker, image, *item), wanted))
        for found, (topic, state) in zip(opened, wanted, strict=True):
            if isinstance(found, StorageError):
                self._broken[topic.name, state.index] = found
            else:
                self._add((topic.name, state.index), found, image)

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Make, drop and reconfigure partitions after a change of the image."""
        if after.topics is not before.topics:
            self._broker.appends.finish()  # what was appended in one term is written and waits in that term
            self._drop_gone(after)
            for topic, state in self._assigned(after, before):
                key = (topic.name, state.index)
                partition = self._partitions.get(key)
                if partition is not None:
                    self._take_role(partition, state)
                elif key not in self._lent:
                    self._unopened[key] = None
            self._open_some()
            self._broker.appends.finish_soon()  # and tell who waited for the end of that term
        if (
            after.topic_configs is not before.topic_configs
            or after.broker_configs is not before.broker_configs
        ):
            self._reconfigure(after)

    def listen(self, on_opened: Callable[[], None]) -> None:
        """Have this called when partitions come into use at another time than when the image changes."""
        self._listeners.append(on_opened)

    async def all_open(self) -> None:
        """Wait until every partition is there that the image gives this broker."""
        await self._all_open.wait()

    def _open_some(self) -> None:
        """Have a few partitions opened in a thread, as the present image has them; then the next."""
        if self._opening or self._jobs.closed:
            return
        image = self._broker.image
        wanted: list[tuple[TopicImage, PartitionState]] = []
        while self._unopened and len(wanted) < _OPENED_AT_ONCE:
            key = next(iter(self._unopened))
            del self._unopened[key]
            state = image.partition(*key)
            known = key in self._partitions or key in self._lent
            if state is not None and self._is_assigned(image, key) and not known:
                wanted.append((image.topics[key[0]], state))
        if not wanted:
            self._all_open.set()
            return
        self._opening = True
        self._all_open.clear()
        broker = self._broker
        self._jobs.run(
            lambda: [(*item, open_partition(broker, image, *item)) for item in wanted], self._opened
        )

    def _opened(self, opened: Future[_Opened]) -> None:
        """Take over what a thread has opened; the image may have changed meanwhile."""
        self._opening = False
        image = self._broker.image
        for topic, state, found in opened.result():
            key = (topic.name, state.index)
            if self._jobs.closed:
                if isinstance(found, Partition):
                    self._partitions[key] = found  # to be closed with the others
            elif isinstance(found, StorageError):
                self._broken[key] = found
                self._withdraw(key)
            elif self._still_here(image, found):
                self._add(key, found, image)
            else:
                self._drop(found)
        self._go_on()

    def _withdraw(self, key: TopicPartition) -> None:
        """Others are to lead what cannot be opened here."""
        if key in self._broken and not self._broker.config.cluster.embedded and not self._jobs.closed:
            doing = f"leaving the in-sync set of {key[0]}-{key[1]}"
            self._broker.background.spawn(self._leave_in_sync_set(key), doing)

    async def _leave_in_sync_set(self, key: TopicPartition) -> None:
        if not await self._broker.membership.withdraw({key}):
            self._broker.loop.call_later(_WITHDRAW_AGAIN_S, self._withdraw, key)

    def _add(self, key: TopicPartition, partition: Partition, image: ClusterImage) -> None:
        """Put a partition into use, in the role that the image gives it."""
        self._broken.pop(key, None)
        self._partitions[key] = partition
        if partition.log.recovery_point < partition.log.end_offset:
            # Written by a process that was killed, or just now by a thread: no append asks for its sync.
            self._broker.appends.unsynced[partition] = None
        self._reconfigure_one(partition, image)
        state = image.partition(*key)
        assert state is not None
        self._take_role(partition, state)

    def _still_here(self, image: ClusterImage, partition: Partition) -> bool:
        topic = image.topic_by_id(partition.topic_id)
        return topic is not None and self._broker.node_id in topic.partitions[partition.index].replicas

    def _go_on(self) -> None:
        """Partitions have come: open the next, and have what depends on them look again."""
        if not self._jobs.closed:
            self._open_some()
            for on_opened in self._listeners:
                on_opened()
            self._broker.appends.finish_soon()

    # -- lending ---------------------------------------------------------------------------------------

    def lend(
        self, partition: Partition, work: Callable[[], T], take_back: Callable[[Future[T]], float]
    ) -> None:
        """Let a thread work on the log of a partition that follows; nobody else uses it meanwhile.

        `take_back` is then called on the loop with what came of it, and says after how many seconds the
        partition is to be used again.
        """
        assert not partition.is_leader, "a leader's log is in use"
        key = (partition.topic, partition.index)
        del self._partitions[key]
        self._lent[key] = partition
        partition.closed = True
        self._broker.replication.dropped(partition)
        release(partition)

        def done(outcome: Future[T]) -> None:
            rest_s = take_back(outcome)
            if rest_s and not self._jobs.closed:
                self._broker.loop.call_later(rest_s, self._returned, partition)
            else:
                self._returned(partition)

        self._jobs.run(work, done)

    def _returned(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        if self._lent.pop(key, None) is None:
            return  # the broker has been stopped
        if self._jobs.closed:
            self._partitions[key] = partition  # to be closed with the others
            return
        image = self._broker.image
        if self._still_here(image, partition):
            partition.closed = False
            self._add(key, partition, image)
        else:
            self._drop(partition)
            self._unopened[key] = None  # there may be another of its name
        self._go_on()

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

    def _drop_gone(self, image: ClusterImage) -> None:
        """Partitions of deleted topics, and those that were moved away, are deleted here."""
        for key, partition in list(self._partitions.items()):
            if not self._still_here(image, partition):
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
            self._reconfigure_one(partition, image)

    def _reconfigure_one(self, partition: Partition, image: ClusterImage) -> None:
        config = topic_config(self._broker, image, partition.topic)
        if config != partition.config:
            partition.configure(config, self._broker.config.storage.decompress_max_bytes)

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
        self._jobs.close()
        self._partitions |= self._lent
        self._lent.clear()
        for partition in self._partitions.values():
            partition.closed = True
            try:
                if partition.log.end_offset and not partition.log.offline_for_good:
                    # What is known of the producers of such a log need not be what is in it (cutting.py).
                    save_producers(partition.log, partition.producers, sync=True)
                partition.log.close()
                if partition.log.offline_for_good:
                    # What it wrote may be gone, or was never whole: an orderly stop does not change that.
                    self._data.distrust(partition.topic, partition.index)
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
