"""The leader's work on one tiered partition, for one term.

First the manifest is read and claimed (`manifests/term_manifest.py`). Then, again and again (`tend`):
retention over both parts of the partition, closed segments are copied, local ones are deleted that the
manifest has, and objects that no longer count.

One thing at a time: all changes of a manifest are made under one lock. After every wait the term may be over;
then nothing more is done (`TermOver`).
"""

from __future__ import annotations

import asyncio
import logging

from forebay.broker.partition.long_polls import release
from forebay.broker.partition.partition import Partition
from forebay.broker.tiers.manifests.term_manifest import TermManifest, TermOver
from forebay.broker.tiers.tier_host import TierHost
from forebay.broker.tiers.uploads import Upload
from forebay.broker.yielding.pace import Pace
from forebay.core.partition.retention import RetentionPolicy
from forebay.core.tiers import manifest_changes as changes
from forebay.core.tiers.planning import Copy, LocalDeletion, local_deletion, retained_from, segments_to_copy
from forebay.errors import StorageError
from forebay.tiers.object_store import ObjectStoreError
from forebay.wire.tiers.layout import segment_key
from forebay.wire.tiers.manifest import Manifest, RemoteSegment
from forebay.wire.tiers.segment_object import AbortedSpan

log = logging.getLogger(__name__)

_COPIES_AT_ONCE = 4
"""Segments that are copied between two changes of the manifest."""
_DELETED_AT_ONCE = 100


class LeaderTerm:
    def __init__(self, host: TierHost, partition: Partition) -> None:
        assert partition.remote is not None
        self.partition = partition
        self.epoch = partition.leader_epoch
        self._host = host
        self._remote = partition.remote
        self._manifest = TermManifest(host, partition, self._check_term)
        self._lock = asyncio.Lock()
        self._pace: Pace | None = None
        """Of the upload under way, or of the last one."""
        self._copy_at: int | None = None
        """How far messages have to be stable for another segment to be copied."""
        self._deletes_later = False
        """True if a local segment that is to be deleted has to wait. The next round looks again."""
        self._delete_at_bytes: int | None = None
        """How large the local log is when it has another segment to delete."""

    @property
    def is_over(self) -> bool:
        partition = self.partition
        return partition.closed or not partition.is_leader or partition.leader_epoch != self.epoch

    def give_up(self) -> None:
        """The term is over: an upload under way ends before the next leader has its object deleted."""
        if self._pace is not None:
            self._pace.stopped = True

    def _check_term(self) -> None:
        if self.is_over:
            raise TermOver(f"this broker does not lead {self.partition} any more")

    # -- when there is work ----------------------------------------------------------------------------

    @property
    def waits_for_log(self) -> bool:
        """True if there is work as soon as more messages are stable, or the local log is larger."""
        return self._copy_at is not None or self._delete_at_bytes is not None

    @property
    def can_copy(self) -> bool:
        """True if the segment can be copied that could not be."""
        return (
            not self._manifest.fenced and self._copy_at is not None and self._stable_offset >= self._copy_at
        )

    @property
    def is_local_too_large(self) -> bool:
        return self._delete_at_bytes is not None and self.partition.log.size >= self._delete_at_bytes

    # -- the work --------------------------------------------------------------------------------------

    async def tend(self) -> bool:
        """Do what there is to do; whether there is more. Raises ObjectStoreError, StorageError, TermOver.

        Never for one partition twice at a time. Uploads take long, and the lock is not held meanwhile: the
        manifest may be changed by others of this process.
        """
        self._copy_at = None  # also if this fails: it is tried again after a pause, or in the next round
        self._deletes_later = False
        async with self._lock:
            await self._manifest.know()
            await self._manifest.look_again()
            self._begin_where_the_manifest_does()
            await self._apply_retention()
            uploads = await self._announce()
        done, failure = await self._upload_all(uploads)
        async with self._lock:
            self._check_term()
            if uploads:
                await self._enter(uploads, done)
            else:
                await self._check_before_deletion()
            self._delete_local()
            await self._delete_objects()
        if failure is not None:
            raise failure
        return bool(uploads)

    async def begin_at(self, offset: int) -> None:
        """Delete messages below an offset from the object store, and from nowhere else."""
        async with self._lock:
            await self._manifest.know()
            manifest = self._remote.manifest
            if manifest is not None and manifest.start_offset < offset:
                await self._manifest.store(changes.started_at(manifest, offset, self._delete_at_ms()))

    def _begin_where_the_manifest_does(self) -> None:
        """The leader before has deleted messages, and has ended before its followers knew."""
        manifest, log_ = self._remote.manifest, self.partition.log
        if manifest is None or manifest.start_offset <= log_.start_offset or log_.offline_for_good:
            return
        start_offset = min(manifest.start_offset, self.partition.high_watermark)
        if start_offset > log_.start_offset:
            log_.advance_start(start_offset)
            release(self.partition)
            self.partition.notify_followers()

    # -- retention -------------------------------------------------------------------------------------

    async def _apply_retention(self) -> None:
        partition, log_, manifest = self.partition, self.partition.log, self._remote.manifest
        if log_.offline_for_good:  # where the disk is full only deletion may make room
            return
        before = partition.start_offset
        kept = retained_from(
            manifest,
            log_.segments(),
            self._policy(local=False),
            now_ms=self._now_ms(),
            start_offset=before,
            high_watermark=partition.high_watermark,
        )
        start_offset = self._without_waiting(kept.start_offset)
        if start_offset <= before:
            return
        if manifest is not None:
            await self._manifest.store(changes.started_at(manifest, start_offset, self._delete_at_ms()))
        if kept.roll_first and log_.offline is None:
            log_.roll()
        if start_offset > log_.start_offset:
            self._delete_local_below(start_offset)
        self._host.metrics.remote_segments_expired += 1
        log.info(
            "retention deleted messages, also from the object store",
            extra={"partition": str(partition), "log_start_offset": start_offset},
        )

    def _without_waiting(self, start_offset: int) -> int:
        """Messages that wait for their time stay, and are carried on first."""
        waiting, log_ = self.partition.delayed_messages, self.partition.log
        if waiting is None or start_offset <= max(waiting.kept_from, log_.start_offset):
            return start_offset
        waiting.carry_below(start_offset, log_.config.segment_bytes)
        return max(waiting.kept_from, log_.start_offset)

    @property
    def has_local_to_delete(self) -> bool:
        """True if local segments may go, by the manifest as it is known."""
        plan = self._local_plan()
        return plan is not None and plan.segments > 0 and not self._deletes_later

    async def delete_copied(self) -> None:
        """Delete local segments that the manifest has, as it is in the object store. Raises ObjectStoreError
        and TermOver."""
        async with self._lock:
            await self._check_before_deletion()
            self._delete_local()

    async def _check_before_deletion(self) -> None:
        self._check_term()
        plan = self._local_plan()
        if plan is not None and plan.segments > 0:
            await self._manifest.check_current()

    def _local_plan(self) -> LocalDeletion | None:
        partition, log_, remote = self.partition, self.partition.log, self._remote
        if not remote.known or remote.manifest is None or log_.offline_for_good or self._manifest.is_lost:
            return None
        return local_deletion(
            log_.segments(),
            self._policy(local=True),
            now_ms=self._now_ms(),
            copied_to=remote.copied_to,
            log_start_offset=log_.start_offset,
            high_watermark=partition.high_watermark,
        )

    def _delete_local(self) -> None:
        """Delete local segments that the manifest has, as local retention says. What is known of it has just
        been in the object store."""
        partition, log_ = self.partition, self.partition.log
        self._delete_at_bytes = None
        plan = self._local_plan()
        if plan is None:
            return
        if plan.roll_first and not partition.config.remote_copy_disable and log_.offline is None:
            log_.roll()
        if plan.segments:
            wanted = log_.segments()[plan.segments - 1].next_offset
            start_offset = self._without_waiting(wanted)
            self._delete_local_below(start_offset)
            if log_.begin_offset < wanted:
                self._deletes_later = True  # messages wait for their time, or the log for a sync
                return
        self._delete_at_bytes = plan.next_at_bytes

    def _delete_local_below(self, start_offset: int) -> None:
        partition, log_ = self.partition, self.partition.log
        count = sum(segment.next_offset <= start_offset for segment in log_.segments()[:-1])
        if not count:
            return
        self._host.metrics.segments_deleted += log_.delete_front(count)
        release(partition)
        partition.notify_followers()

    def _policy(self, *, local: bool) -> RetentionPolicy:
        config = self.partition.config
        of_time, of_size = config.local_retention
        return RetentionPolicy(
            retention_ms=of_time if local else config.retention_ms,
            retention_bytes=of_size if local else config.retention_bytes,
            delay_ms=config.delay_ms,
            deletes=config.deletes,
        )

    # -- copying ---------------------------------------------------------------------------------------

    async def _announce(self) -> list[Upload]:
        """The next segments to copy, whose objects the manifest names from now on."""
        copies = self._to_copy()
        if not copies:
            return []
        await self._manifest.description.write()
        manifest = self._remote.manifest
        if manifest is None:
            manifest = self._manifest.claimed(
                Manifest(
                    topic=self.partition.topic,
                    topic_id=self.partition.topic_id,
                    partition=self.partition.index,
                    start_offset=self.partition.log.start_offset,
                )
            )
        self._check_term()
        if manifest.pending:  # the failure of an upload could not be noted
            manifest = changes.given_up(manifest, manifest.pending, self._delete_at_ms())
        uploads = [self._upload(copy) for copy in copies]
        await self._manifest.store(changes.with_pending(manifest, [upload.key for upload in uploads]))
        return uploads

    async def _upload_all(
        self, uploads: list[Upload]
    ) -> tuple[list[RemoteSegment], ObjectStoreError | StorageError | None]:
        """The segments that were copied, and why not all were."""
        done: list[RemoteSegment] = []
        try:
            for upload in uploads:
                done.append(await self._run(upload))
                self._check_term()
        except (ObjectStoreError, StorageError) as error:
            return done, error
        return done, None

    def _to_copy(self) -> list[Copy]:
        partition, log_ = self.partition, self.partition.log
        self._copy_at = None
        if partition.config.remote_copy_disable or log_.offline_for_good:
            return []
        remote_end = self._remote.copied_to if self._remote.manifest is not None else log_.start_offset
        closed = log_.segments()[:-1]
        copies = segments_to_copy(
            closed, remote_end, stable_offset=self._stable_offset, count_max=_COPIES_AT_ONCE
        )
        if not copies:
            waiting = segments_to_copy(closed, remote_end, stable_offset=log_.end_offset, count_max=1)
            self._copy_at = waiting[0].next_offset if waiting else None
        return copies

    @property
    def _stable_offset(self) -> int:
        """Everything below is committed, durable here, and part of no open transaction."""
        return min(self.partition.last_stable_offset, self.partition.log.recovery_point)

    def _upload(self, copy: Copy) -> Upload:
        partition, log_ = self.partition, self.partition.log
        stretch = next(iter(log_.stretches(copy.base_offset)), None)
        if stretch is None or stretch.file.next_base != copy.next_offset:
            raise StorageError(f"the batches of {partition} from offset {copy.base_offset} on are missing")
        aborted = log_.aborted_transactions(copy.base_offset, copy.next_offset)
        unique = self._host.entropy(6).hex()
        return Upload(
            segment_key(
                partition.topic_id, partition.index, copy.base_offset, copy.next_offset, self.epoch, unique
            ),
            copy,
            stretch,
            log_.files,
            tuple(AbortedSpan(*entry) for entry in aborted),
            self._host.config.chunk_bytes,
            self._now_ms(),
            stretch.file.lend(),
        )

    async def _run(self, upload: Upload) -> RemoteSegment:
        host = self._host
        pace = self._pace = host.pace()
        host.paces.add(pace)
        try:
            copied = await host.threads.run(lambda: upload.run(host.store, pace))
        except OSError as error:
            raise StorageError(f"cannot read a segment of {self.partition}: {error}") from error
        finally:
            host.paces.discard(pace)
        host.metrics.remote_segments_copied += 1
        host.metrics.remote_bytes_copied += copied.object_bytes
        return copied

    async def _enter(self, uploads: list[Upload], done: list[RemoteSegment]) -> None:
        """Enter what was copied into the manifest; the rest is deleted later."""
        manifest = self._remote.manifest
        if manifest is None or not self._remote.known:
            return  # whoever claims the manifest next finds them pending
        fitting = changes.fitting(manifest, done)
        copied = {segment.key for segment in fitting}
        failed = [upload.key for upload in uploads if upload.key not in copied]
        if fitting:
            manifest = changes.with_copied(manifest, fitting)
        if failed:
            manifest = changes.given_up(manifest, failed, self._delete_at_ms())
        await self._manifest.store(manifest)

    # -- objects that no longer count ------------------------------------------------------------------

    async def _delete_objects(self) -> None:
        manifest, host = self._remote.manifest, self._host
        if manifest is None or not self._remote.known:
            return  # another one may count, which lists these objects
        keys = changes.due_for_deletion(manifest, self._now_ms(), _DELETED_AT_ONCE)
        if not keys:
            return
        await self._manifest.delete(keys)
        host.metrics.remote_objects_deleted += len(keys)
        await self._manifest.store(changes.without_doomed(manifest, set(keys)))

    def _now_ms(self) -> int:
        return self._host.time.trusted_ms()

    def _delete_at_ms(self) -> int:
        return self._now_ms() + self._host.config.delete_delay_ms
