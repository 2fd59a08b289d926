"""Keeping the partitions of this broker in step with the cluster image: which are open, and in which role.

The logs of partitions that cannot be opened keep their checkpoints as they are, and are checked whenever they
are opened next, even if this broker stops cleanly. The same holds for directories of partitions that are not
assigned to this broker.

Partitions are opened in a thread, and the log of a partition that follows can be lent to a thread (`lend`):
making files, checking a log after a crash and truncating it take longer than the loop may be blocked. A
partition that is being opened, or whose log is lent, is not used: the table refuses it, and it is `closed`
for the parts that still hold it. When it is back, the newest image is applied: it takes the role that it has
by then (`roles.py`), or is let go. Until then no other partition of its name is opened.

A log that is not used any more is deleted only if the image says positively that it may be; otherwise it is
put aside (`unused/unused_logs.py`). A partition whose topic or state cannot be read
(`core/cluster/images/unreadable.py`) rests: it neither leads nor follows, and nothing of it is deleted. One
that could not be read when this broker started is opened when it can be, and may have to wait for its role
(`opening/late_roles.py`).

A single broker with very many partitions leaves those closed, and makes no directory for them, that nobody
has used yet (`opening/unused_partitions.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Protocol, TypeVar

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.departure import Departure
from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.assignment.assigned import (
    assigned_partitions,
    changed_keys,
    changed_partitions,
    is_assigned,
    still_assigned,
)
from forebay.broker.partition.assignment.clean_shutdown import close_logs
from forebay.broker.partition.assignment.roles import Roles
from forebay.broker.partition.log_jobs import LogJobs
from forebay.broker.partition.long_polls import release
from forebay.broker.partition.opening.late_roles import LateRoles
from forebay.broker.partition.opening.later_opening import LaterOpening, Opened
from forebay.broker.partition.opening.opening_again import OpeningAgain, Withdrawal
from forebay.broker.partition.opening.opening_queue import may_open_behind, must_open_first
from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.broker.partition.opening.unused_partitions import UnusedPartitions
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.partition.unused.strays import is_in_doubt
from forebay.broker.partition.unused.unused_logs import UnusedLogs
from forebay.broker.signals import Signal
from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.topic_partition import TopicPartition
from forebay.errors import StorageError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

T = TypeVar("T")


class Writes(Protocol):
    """The work of the write cycle for partitions that come, go and change their role."""

    unsynced: dict[Partition, None]
    """Partitions with writes that no flush has been asked for."""

    def finish(self) -> None:
        """Write what is queued, and settle the requests that wait for it."""

    def finish_soon(self) -> None:
        """Have that done soon, and wake fetches that wait."""


class Assignment:
    def __init__(
        self,
        table: PartitionTable,
        *,
        node_id: int,
        settings: LiveConfig,
        metadata: Metadata,
        write_cycle: Writes,
        data: DataDir,
        opener: PartitionOpener,
        opening_pool: Callable[[], Executor],
        closing_pool: Callable[[], Executor],
        jobs: LogJobs,
        workers: WorkerThreads,
        background: Background,
        departure: Departure,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`opening_pool` makes the threads that open the partitions before the broker serves, `closing_pool`
        those that sync them when it serves no more."""
        self._table = table
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._write_cycle = write_cycle
        self._data = data
        self._opener = opener
        self._opening_pool = opening_pool
        self._closing_pool = closing_pool
        self._jobs = jobs
        self._loop = loop
        self._queue = table.opening
        self._unused = UnusedPartitions(table.opening, settings, data)
        self._again = OpeningAgain(loop.time)
        self._withdrawal = Withdrawal(departure, background, loop, self._must_withdraw)
        self.late_roles = LateRoles(
            departure,
            background,
            loop,
            is_damaged=lambda key: table.is_damaged(key) or key in data.made,
            take_role=self._take_late_role,
        )
        self.roles = Roles(self.late_roles, metadata, settings, time, node_id=node_id)
        self.unused_logs = UnusedLogs(data, node_id, workers, time.now_ms)
        self.later = LaterOpening(
            table.opening,
            opener,
            self.unused_logs,
            data,
            jobs,
            image=lambda: metadata.image,
            is_missing=self._is_missing,
            take_over=self._take_over,
            pass_over=self._pass_over,
        )
        self._queue.on_asked = self.later.open_some
        """Opens what is not opened before the broker serves."""
        self.configured: Signal[Partition] = Signal()
        """A partition has other settings."""
        self.dropped: Signal[Partition] = Signal()
        """A partition is out of use: deleted here, or its log is lent."""
        self.opened: Signal[[]] = Signal()
        """Partitions have come into use at another time than when the image changes."""
        self.settled: Signal[list[TopicPartition]] = Signal()
        """These partitions are open now, or will not be."""

    # -- following the image ---------------------------------------------------------------------------

    def open_all(self, image: ClusterImage) -> None:
        """Open what the image assigns to this broker. Blocks; done before the broker serves.

        Of very many only the brokers' own topics are opened now, those of which nothing is here, and those
        that this broker could be elected for alone: other replicas have to know what they lack before this
        broker joins. The others are opened when it serves, and those whose logs turn out to lack messages
        take no role before other replicas know it (`opening/late_roles.py`).
        """
        wanted = self._unused.open_first(image, list(assigned_partitions(image, self._node_id)))
        config = self._settings.current
        if may_open_behind(config, self._data, len(wanted)):
            here, behind = set(self._data.partitions()), wanted
            wanted = [
                (topic, state)
                for topic, state in behind
                if topic.name in INTERNAL_TOPICS
                or (key := (topic.name, state.index)) not in here
                or must_open_first(image, config, self._node_id, key)
            ]
            self._queue.add_behind((topic.name, state.index) for topic, state in behind)
            self._queue.forget((topic.name, state.index) for topic, state in wanted)
            self.late_roles.add(self._queue.unchecked)
        unchecked = self._queue.unchecked
        self.unused_logs.sort_out(image, [key for key in self._data.partitions() if key not in unchecked])
        with self._opening_pool() as pool:
            opened = list(pool.map(lambda item: self._opener.open(image, *item), wanted))
        for found, (topic, state) in zip(opened, wanted, strict=True):
            if isinstance(found, StorageError):
                self._table.broken[topic.name, state.index] = found
            else:
                self._add((topic.name, state.index), found, image)

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Make, drop and reconfigure partitions after a change of the image."""
        if after.topics is not before.topics:
            self._write_cycle.finish()  # what was appended in one term is written and waits in that term
            self._drop_gone(before, after)
            closed: list[tuple[TopicImage, PartitionState]] = []
            for topic, state in changed_partitions(after, before, self._node_id, self._table.usable):
                key = (topic.name, state.index)
                partition = self._table.usable.get(key)
                if partition is not None:
                    self.roles.take(partition, topic, state)
                elif key not in self._table.lent:
                    closed.append((topic, state))
            for topic, state in self._unused.needed(after, closed):
                self.later.add((topic.name, state.index))
            self.later.open_some()
            self._write_cycle.finish_soon()  # and wake what waited for the end of that term
        if (
            after.topic_configs is not before.topic_configs
            or after.broker_configs is not before.broker_configs
        ):
            self._reconfigure(after)

    def _is_missing(self, image: ClusterImage, key: TopicPartition) -> bool:
        """True if the image assigns a partition to this broker that is neither in use nor lent."""
        known = key in self._table.usable or key in self._table.lent
        return not known and is_assigned(image, self._node_id, key)

    def _take_over(self, opened: list[Opened]) -> None:
        """Put into use what a thread has opened; the image may have changed meanwhile."""
        image, table = self._metadata.image, self._table
        for topic, state, found in opened:
            key = (topic.name, state.index)
            if self._jobs.closed:
                if isinstance(found, Partition):
                    table.usable[key] = found  # to be closed with the others
            elif isinstance(found, StorageError):
                table.broken[key] = found
                self._withdrawal.begin(key)
            elif still_assigned(image, self._node_id, found):
                self._add(key, found, image)
            else:
                self.late_roles.forget([key])
                self._drop(found, image)
        self._settle([(topic.name, state.index) for topic, state, _ in opened])
        self._go_on()

    def _pass_over(self, keys: list[TopicPartition]) -> None:
        """These do not belong to this broker any more, cannot be read in the store now, or are open."""
        image = self._metadata.image
        self.late_roles.forget([key for key in keys if not is_assigned(image, self._node_id, key)])
        self._unused.passed_over(key for key in keys if is_in_doubt(image, *key))
        self._settle(keys)

    def _settle(self, keys: list[TopicPartition]) -> None:
        if keys:
            self._queue.settle(keys)
            self.settled.send(keys)

    def _take_late_role(self, key: TopicPartition) -> None:
        partition, image = self._table.usable.get(key), self._metadata.image
        state = image.partition(*key)
        if partition is not None and state is not None and not is_in_doubt(image, *key):
            self.roles.take(partition, image.topics[key[0]], state)
            self._go_on()

    def _must_withdraw(self, key: TopicPartition) -> bool:
        return (
            key in self._table.broken
            and not self._settings.current.cluster.embedded
            and not self._jobs.closed
        )

    def _add(self, key: TopicPartition, partition: Partition, image: ClusterImage) -> None:
        """Put a partition into use, in the role that the image gives it."""
        self._table.broken.pop(key, None)
        self._table.usable[key] = partition
        if partition.log.recovery_point < partition.log.end_offset:
            # Written by a process that was killed, or just now by a thread: no append asks for its flush.
            self._write_cycle.unsynced[partition] = None
        self._reconfigure_one(partition, image)
        self.roles.take_newest(partition, image)

    def _go_on(self) -> None:
        """Partitions have come into use: open the next, and have what depends on them look again."""
        if not self._jobs.closed:
            self.later.go_on()
            self.opened.send()
            self._write_cycle.finish_soon()

    # -- lending ---------------------------------------------------------------------------------------

    def lend(
        self, partition: Partition, work: Callable[[], T], take_back: Callable[[Future[T]], float]
    ) -> None:
        """Let a thread work on the log of a follower. Nothing else uses the log until it is back.

        `take_back` is then called on the loop with the outcome. It returns after how many seconds the
        partition is to be used again.
        """
        assert not partition.is_leader, "a leader's log is in use"
        key = (partition.topic, partition.index)
        del self._table.usable[key]
        self._table.lent[key] = partition
        partition.closed = True
        self.dropped.send(partition)
        release(partition)

        def done(outcome: Future[T]) -> None:
            rest_s = take_back(outcome)
            if rest_s and not self._jobs.closed:
                self._loop.call_later(rest_s, self._returned, partition)
            else:
                self._returned(partition)

        self._jobs.run(work, done)

    def _returned(self, partition: Partition) -> None:
        key = (partition.topic, partition.index)
        if self._table.lent.pop(key, None) is None:
            return  # the broker has been stopped
        if self._jobs.closed:
            self._table.usable[key] = partition  # to be closed with the others
            return
        image = self._metadata.image
        if still_assigned(image, self._node_id, partition):
            partition.closed = False
            self._add(key, partition, image)
        else:
            self._drop(partition, image)
            self.later.add(key)  # there may be another of its name
        self._go_on()

    def _drop_gone(self, before: ClusterImage, image: ClusterImage) -> None:
        """Let go of partitions that do not belong to this broker any more."""
        table = self._table
        keys = list(table.usable) if before.unreadable or image.unreadable else changed_keys(before, image)
        for key in keys:
            partition = table.usable.get(key)
            if partition is None:
                continue
            if not still_assigned(image, self._node_id, partition):
                del table.usable[key]
                self._drop(partition, image)
            elif image.unreadable and is_in_doubt(image, *key):
                self.roles.rest(partition)
        table.broken = {
            key: error for key, error in table.broken.items() if is_assigned(image, self._node_id, key)
        }

    def _drop(self, partition: Partition, image: ClusterImage) -> None:
        partition.close()
        self.dropped.send(partition)
        try:
            self.unused_logs.let_go(partition, image)
        except (OSError, StorageError):
            log.exception(
                "a partition that is not used any more stays on the disk", extra={"partition": str(partition)}
            )
        release(partition)

    def _reconfigure(self, image: ClusterImage) -> None:
        for partition in self._table.usable.values():
            self._reconfigure_one(partition, image)

    def _reconfigure_one(self, partition: Partition, image: ClusterImage) -> None:
        config = self._opener.topic_config(image, partition.topic)
        if config is not partition.config and config != partition.config:
            partition.configure(config, self._settings.current.storage.decompress_max_bytes)
            self.configured.send(partition)

    # -- upkeep ----------------------------------------------------------------------------------------

    def open_again(self) -> None:
        """Try partitions that the system refused to open: a full disk may have room again, say."""
        if self._table.broken and not self._jobs.closed:
            for key in self._again.due(self._table.broken):
                self.later.add(key)
            self.later.open_some()

    def checkpoint(self) -> None:
        """Write down how far the logs have come. Blocks; any thread."""
        partitions = dict(self._table.usable)
        if self._data.checkpoints.are_current(partitions):
            return
        self._data.checkpoints.write(
            {key: partition.log for key, partition in partitions.items()},
            {key: partition.high_watermark for key, partition in partitions.items()},
        )

    def close_all(self) -> bool:
        """Close every log; whether all of them were left in order. Blocks."""
        self._queue.clear()
        self._jobs.close()
        table = self._table
        table.usable |= table.lent
        table.lent.clear()
        partitions = list(table.usable.values())
        for partition in partitions:
            partition.closed = True
        closed = close_logs(partitions, self._closing_pool(), self._data)
        # Logs that were not opened since an unclean stop have to be checked at the next start.
        clean = closed and (self._data.clean or not self._queue.unchecked)
        try:
            if table.usable:
                self.checkpoint()
        except OSError:
            log.exception("no checkpoints were written; the logs are looked at when the broker starts again")
            clean = False
        return clean
