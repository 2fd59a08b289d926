"""What has to be done now and then: syncing, retention, compaction, checkpoints, idle connections.

Each duty is a small step that decides on the loop and lets threads do what blocks. One that fails is logged
and tried again at its next turn; the broker goes on. The same holds for each partition of a duty: what is
wrong with one is no reason to neglect the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.partition import Partition
from forebay.core.retention import RetentionPolicy, plan_retention
from forebay.errors import StorageError

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

_CHECKPOINT_INTERVAL_MS = 10_000
_IDLE_CHECKS_PER_LIMIT = 4
_IDLE_CHECK_MS_MAX = 60_000
_REAP_INTERVAL_MS = 5_000
_OFFLINE_CHECK_MS = 1_000
_PARTITIONS_PER_STEP = 50
"""After so many partitions a duty lets the loop serve requests."""

Duty = Callable[[], Awaitable[None]]


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._unremoved: list[str] = []
        """Files of deleted segments that are still to be removed."""

    def start(self) -> list[asyncio.Task[None]]:
        storage, socket = self._broker.config.storage, self._broker.config.socket
        idle_check_ms = min(socket.idle_ms_max // _IDLE_CHECKS_PER_LIMIT, _IDLE_CHECK_MS_MAX)
        duties: list[tuple[int, Duty]] = [
            (storage.flush_interval_ms, self.sync),
            (storage.retention_check_interval_ms, self.apply_retention),
            (_REAP_INTERVAL_MS, self.reap),
            (_CHECKPOINT_INTERVAL_MS, self.checkpoint),
            (_OFFLINE_CHECK_MS, self.bring_back),
            (idle_check_ms, self.close_idle),
            (storage.producer_id_expiration_check_interval_ms, self.expire_producers),
        ]
        cleaner = self._broker.config.cleaner
        if cleaner.enable:
            duties.append((cleaner.backoff_ms, self.compact))
        return [self._start(interval_ms, duty) for interval_ms, duty in duties]

    def _start(self, interval_ms: int, duty: Duty) -> asyncio.Task[None]:
        doing = f"housekeeping: {getattr(duty, '__name__', '')}"
        return self._broker.background.keep(lambda: self._every(interval_ms, duty, doing), doing)

    async def _every(self, interval_ms: int, duty: Duty, doing: str) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await duty()
            except Exception as error:
                self._broker.background.failed(doing, error)

    async def sync(self) -> None:
        """Bound what a loss of power can take of messages that nobody waited for."""
        self._broker.appends.sync_all()

    async def _for_each(self, duty: str, act: Callable[[Partition], object]) -> None:
        for number, partition in enumerate(self._broker.replicas.all()):
            if number % _PARTITIONS_PER_STEP == 0:
                await asyncio.sleep(0)
            if partition.closed:
                continue
            try:
                act(partition)
            except Exception as error:
                self._broker.background.failed(f"housekeeping: {duty}", error, partition=str(partition))

    async def apply_retention(self) -> None:
        await self._for_each("apply_retention", self._retain)

    def _retain(self, partition: Partition) -> None:
        config, log_ = partition.config, partition.log
        if log_.offline is not None:
            return
        plan = plan_retention(
            log_.segments(),
            RetentionPolicy(
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                deletes=config.deletes,
            ),
            now_ms=self._broker.trusted_time.now_ms(),
            log_start_offset=log_.start_offset,
            high_watermark=partition.high_watermark,
        )
        if plan.roll_first:
            log_.roll()
        if plan.delete_count:
            log_.delete_front(plan.delete_count)
            self._broker.metrics.segments_deleted += plan.delete_count
            log.info(
                "retention deleted segments",
                extra={
                    "partition": f"{partition.topic}-{partition.index}",
                    "segments": plan.delete_count,
                    "log_start_offset": log_.start_offset,
                },
            )

    async def compact(self) -> None:
        await self._broker.compactor.run()

    async def reap(self) -> None:
        """Remove from the disk what was deleted long enough ago that no reader is in it any more."""
        await self._for_each("reap", lambda partition: self._unremoved.extend(partition.log.reap()))
        if self._unremoved:
            paths, self._unremoved = self._unremoved, []
            self._unremoved += await self._broker.in_thread(partial(self._remove_all, paths))
        await self._broker.replicas.remove_deleted()

    def _remove_all(self, paths: list[str]) -> list[str]:
        """Remove files, in a thread; those that could not be."""
        left: list[str] = []
        for path in paths:
            try:
                self._broker.disk.remove(path)
            except OSError as error:
                left.append(path)
                self._broker.background.failed("housekeeping: reap", error)
        return left

    async def checkpoint(self) -> None:
        await self._broker.in_thread(self._broker.replicas.checkpoint)

    async def bring_back(self) -> None:
        """Look whether logs that could not be written can be now.

        An append would find out too. But where a leader is left alone, because the disks of all replicas were
        full, acks=all is refused before anything is appended, and nobody could ever join it again.
        """
        offline: list[Partition] = []
        await self._for_each(
            "bring_back", lambda each: offline.append(each) if _may_come_back(each) else None
        )
        for partition in offline:
            try:
                await self._broker.in_thread(partition.log.probe)
                if not partition.closed:
                    partition.log.come_back()
                    self._broker.replication.isr.consider(partition)
            except (OSError, StorageError):
                continue  # it is known to be offline

    async def close_idle(self) -> None:
        self._broker.server.close_idle()

    async def expire_producers(self) -> None:
        now_ms = int(self._broker.clock.monotonic() * 1000)
        expiration_ms = self._broker.config.storage.producer_id_expiration_ms
        await self._for_each(
            "expire_producers", lambda partition: partition.producers.expire(now_ms, expiration_ms)
        )


def _may_come_back(partition: Partition) -> bool:
    return partition.log.offline is not None and not partition.log.offline_for_good
