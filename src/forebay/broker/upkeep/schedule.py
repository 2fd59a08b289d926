"""Work at intervals: flushing, retention, compaction, checkpoints, idle connections.

Each duty is a small step that decides on the loop and lets threads do what blocks. A duty that fails is
logged and tried again at its next turn; the broker goes on. The same holds for each partition of a duty: what
is wrong with one is no reason to neglect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from forebay.broker.upkeep.offline_logs import bring_back, may_come_back
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.partition.assignment.assignment import Assignment
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.produce.write_cycle import WriteCycle
    from forebay.broker.replication.isr import InSyncReplicas
    from forebay.broker.tokens.expired_tokens import ExpiredTokens
    from forebay.broker.upkeep.compaction import Compactor
    from forebay.broker.upkeep.deleted_topics import DeletedTopics
    from forebay.broker.upkeep.folded_partitions import FoldedPartitions
    from forebay.broker.upkeep.retention import Retention
    from forebay.broker.worker_threads import WorkerThreads
    from forebay.storage.disk import Disk
    from forebay.storage.log.tended_logs import TendedLogs

_EMPTY_FILES = "forebay.storage.log.deleted_files:empty_files"
_CHECKPOINT_INTERVAL_MS = 10_000
_IDLE_CHECKS_PER_LIMIT = 4
_IDLE_CHECK_MS_MAX = 60_000
_REAP_INTERVAL_MS = 1_000
_REAP_PAUSE_S = 0.1
"""At least so long from one time that files are removed to the next."""
_OFFLINE_CHECK_MS = 1_000
_FOLDED_CHECK_MS = 1_000
_TOMBSTONE_CHECK_MS = 60_000
_PARTITIONS_PER_STEP = 50
"""After this many partitions a duty lets the loop serve requests."""

Duty = Callable[[], Awaitable[None]]


class Upkeep:
    def __init__(
        self,
        *,
        settings: LiveConfig,
        partitions: PartitionTable,
        assignment: Assignment,
        write_cycle: WriteCycle,
        retention: Retention,
        compactor: Callable[[], Compactor],
        folded: FoldedPartitions,
        deleted_topics: DeletedTopics,
        expired_tokens: ExpiredTokens,
        isr: InSyncReplicas,
        close_idle: Callable[[], None],
        tended: TendedLogs,
        disk: Disk,
        workers: WorkerThreads,
        background: Background,
        time: BrokerTime,
    ) -> None:
        """`compactor` is made when there are compacted topics. `close_idle` closes connections that have been
        idle for too long."""
        self._settings = settings
        self._partitions = partitions
        self._assignment = assignment
        self._write_cycle = write_cycle
        self._retention = retention
        self._compactor = compactor
        self._folded = folded
        self._deleted_topics = deleted_topics
        self._expired_tokens = expired_tokens
        self._isr = isr
        self._close_idle = close_idle
        self._tended = tended
        self._disk = disk
        self._workers = workers
        self._background = background
        self._time = time
        self._unremoved: list[str] = []
        """Files of deleted segments that are still to be removed."""
        self._emptied: list[str] = []
        """More of them, which have no content any more."""
        self._reap_is_due = asyncio.Event()

    # -- the schedule ----------------------------------------------------------------------------------

    def start(self) -> list[asyncio.Task[None]]:
        config = self._settings.current
        storage, cleaner = config.storage, config.cleaner
        idle_check_ms = min(config.socket.idle_ms_max // _IDLE_CHECKS_PER_LIMIT, _IDLE_CHECK_MS_MAX)
        duties: list[tuple[int, Duty]] = [
            (storage.flush_interval_ms, self.sync),
            (storage.retention_check_interval_ms, self.apply_retention),
            (_CHECKPOINT_INTERVAL_MS, self.checkpoint),
            (_OFFLINE_CHECK_MS, self.bring_back),
            (_FOLDED_CHECK_MS, self.remove_folded),
            (_TOMBSTONE_CHECK_MS, self.forget_deleted),
            (config.tokens.expiry_check_interval_ms, self.remove_tokens),
            (idle_check_ms, self.close_idle),
            (storage.producer_id_expiration_check_interval_ms, self.expire_producers),
        ]
        if cleaner.enable:
            duties.append((cleaner.backoff_ms, self.compact))
        self._tended.on_due = self._reap_is_due.set
        reaping = self._background.keep(self._reap_when_due, "housekeeping: reap")
        return [reaping, *(self._start(interval_ms, duty) for interval_ms, duty in duties)]

    def _start(self, interval_ms: int, duty: Duty) -> asyncio.Task[None]:
        doing = f"housekeeping: {getattr(duty, '__name__', '')}"
        return self._background.keep(lambda: self._every(interval_ms, duty, doing), doing)

    async def _every(self, interval_ms: int, duty: Duty, doing: str) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await duty()
            except Exception as error:
                self._background.failed(doing, error)

    async def _reap_when_due(self) -> None:
        """At intervals, and soon after a segment was deleted whose files need not wait."""
        while True:
            await asyncio.sleep(_REAP_PAUSE_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_REAP_INTERVAL_MS / 1000 - _REAP_PAUSE_S):
                    await self._reap_is_due.wait()
            self._reap_is_due.clear()
            try:
                await self.reap()
            except Exception as error:
                self._background.failed("housekeeping: reap", error)

    async def _for_each(self, duty: str, act: Callable[[Partition], object]) -> None:
        for number, partition in enumerate(self._partitions.all()):
            if number % _PARTITIONS_PER_STEP == 0:
                await asyncio.sleep(0)
            if partition.closed:
                continue
            try:
                act(partition)
            except Exception as error:
                self._background.failed(f"housekeeping: {duty}", error, partition=str(partition))

    # -- the duties ------------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Bound what a loss of power can take of messages that were acknowledged before they were flushed."""
        self._write_cycle.sync_all()

    async def apply_retention(self) -> None:
        await self._for_each("apply_retention", self._retention.apply)

    async def remove_folded(self) -> None:
        await self._folded.remove_over()

    async def forget_deleted(self) -> None:
        await self._deleted_topics.forget_old()

    async def remove_tokens(self) -> None:
        await self._expired_tokens.remove()

    async def compact(self) -> None:
        if any(partition.config.compacted for partition in self._partitions.all()):
            await self._compactor().run()

    async def reap(self) -> None:
        """Remove from the disk what was deleted long enough ago that no reader is in it any more."""
        unused_logs = self._assignment.unused_logs
        try:
            await self._reap_segments()
        except OSError:  # where the disk is full a topic may have been deleted to make room
            await unused_logs.work_off()
            raise
        await unused_logs.work_off()

    async def _reap_segments(self) -> None:
        """Remove deleted segments.

        Where the logs begin now is written down first. A log whose files are gone from below that, after a
        loss of power, has lost its beginning. Where the disk is too full for that, the files are emptied:
        their names tell it until then.
        """
        if any(log.is_reap_due for log in self._tended.deleted):
            await self._for_each("reap", lambda partition: self._unremoved.extend(partition.log.reap()))
        self._tended.forget_those_in_order()
        if self._unremoved or self._emptied:
            try:
                await self.checkpoint()
            except OSError:
                await self._empty_unremoved()
                raise  # the next round tries again
            paths, self._unremoved, self._emptied = self._emptied + self._unremoved, [], []
            self._unremoved += await self._workers.run(partial(self._remove_all, paths))

    def _remove_all(self, paths: list[str]) -> list[str]:
        """Remove files, in a thread. Returns those that could not be removed."""
        left: list[str] = []
        for path in paths:
            try:
                self._disk.remove(path)
            except OSError as error:
                left.append(path)
                self._background.failed("housekeeping: reap", error)
        return left

    async def _empty_unremoved(self) -> None:
        """Make room. Each file once: there may be more and more of them."""
        paths, self._unremoved = self._unremoved, []
        emptied, left = await self._workers.run(partial(self._empty_all, paths))
        self._emptied += emptied
        self._unremoved += left

    def _empty_all(self, paths: list[str]) -> tuple[list[str], list[str]]:
        """Empty files, in a thread. Returns those that are empty now, and those that may not be."""
        emptied, left = list[str](), list[str]()
        for directory, group in groupby(paths, key=lambda path: path.rpartition("/")[0]):
            files = list(group)
            try:
                with suppress(FileNotFoundError):  # the directory was removed, or has another name
                    load(_EMPTY_FILES)(self._disk, directory, files)
                emptied += files
            except OSError as error:
                left += files
                self._background.failed("housekeeping: reap", error)
        return emptied, left

    async def checkpoint(self) -> None:
        await self._workers.run(self._assignment.checkpoint)

    async def bring_back(self) -> None:
        self._assignment.open_again()
        if not self._tended.offline:
            return
        offline: list[Partition] = []
        await self._for_each("bring_back", lambda each: offline.append(each) if may_come_back(each) else None)
        await bring_back(offline, self._workers, self._isr)
        self._tended.forget_those_in_order()

    async def close_idle(self) -> None:
        self._close_idle()

    async def expire_producers(self) -> None:
        now_ms = self._time.uptime_ms()
        storage = self._settings.current.storage

        def expire(partition: Partition) -> None:
            expiration_ms = storage.producer_id_expiration_ms
            partition.producers.expire(now_ms, expiration_ms, partition.high_watermark)
            if partition.fold is not None:
                partition.fold.age(self._time.trusted_ms(), storage)

        await self._for_each("expire_producers", expire)
