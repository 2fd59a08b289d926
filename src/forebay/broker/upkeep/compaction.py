"""Compaction of the logs of this broker: one at a time, the dirtiest first, in a thread beside the loop.

The loop decides what may be cleaned (`core/partition/compaction/plan.py`) and swaps segments; a thread reads
and rewrites them (`storage/log/compaction/cleaner.py`). The thread shares the interpreter with the loop, so
it works in short stretches and pauses after each, and it obeys log.cleaner.io.max.bytes.per.second.

A log with a damaged batch is left alone until the broker starts again: its damage must not be rewritten. One
that a cleaning made no cleaner is left alone until there is more to clean. Whatever is wrong with one log,
the others get their turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from forebay.broker.yielding.pace import Pace, Stopped
from forebay.core.partition.compaction.batch_filter import last_batches
from forebay.core.partition.compaction.plan import CompactionPlan, CompactionPolicy, plan_compaction
from forebay.errors import StorageError
from forebay.storage.log.compaction.cleaner import Cleaner, CleaningTask, Rewritten
from forebay.storage.log.segment.batch_parts import CorruptBatch
from forebay.storage.log.segment.batch_walk import NO_NEXT
from forebay.wire.compression import OutputTooLarge

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.coordination.metadata import Metadata
    from forebay.storage.datadir import DataDir
    from forebay.storage.disk import Disk
    from forebay.storage.log.log import Log
    from forebay.storage.log.segment.segment import Segment

log = logging.getLogger(__name__)

_PARTITIONS_PER_STEP = 50
_NO_LAG_LIMIT = 2**63 - 1
_SYNCS_WAITED_FOR = 2
"""A sync that has just begun says nothing of what came after; the next one does."""

T = TypeVar("T")


class Compactor:
    def __init__(
        self,
        *,
        settings: LiveConfig,
        metadata: Metadata,
        partitions: PartitionTable,
        data: DataDir,
        disk: Disk,
        checkpoint: Callable[[], None],
        pool: Executor,
        background: Background,
        metrics: Metrics,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`checkpoint` writes down how far the logs have come; it blocks. `pool` has one thread."""
        self._settings = settings
        self._metadata = metadata
        self._partitions = partitions
        self._data = data
        self._disk = disk
        self._checkpoint = checkpoint
        self._pool = pool
        self._background = background
        self._metrics = metrics
        self._time = time
        self._loop = loop
        self._pace: Pace | None = None
        self._stopped: set[Log] = set()
        """Logs that cannot be compacted: a batch is damaged, or unpacks to more than is allowed."""
        self._futile: dict[Log, int] = {}
        """Logs that a cleaning up to this offset made no cleaner, or whose cleaning met a bug."""
        self._in_sync: dict[Log, tuple[int, int]] = {}
        """Logs whose replicas are all in sync: the epoch of that state, and when it was first seen here."""
        self.cleaning: Partition | None = None
        """The partition that is being compacted now."""
        self._closed = False

    async def run(self) -> None:
        """Clean until no log needs it."""
        tried: set[Partition] = set()
        while not self._closed:
            found = await self._dirtiest(tried)
            if found is None:
                return
            partition, plan = found
            if not await self._try(partition, plan):
                tried.add(partition)  # its next chance comes with the next turn

    def close(self) -> None:
        """Stop the thread. Blocks for as long as it needs to notice."""
        self._closed = True
        if self._pace is not None:
            self._pace.stopped = True
        self._pool.shutdown(wait=True)

    # -- deciding ------------------------------------------------------------------------------------

    async def _dirtiest(self, tried: set[Partition]) -> tuple[Partition, CompactionPlan] | None:
        best: tuple[Partition, CompactionPlan] | None = None
        compacted = [partition for partition in self._partitions.all() if partition.config.compacted]
        for number, partition in enumerate(compacted):
            if number % _PARTITIONS_PER_STEP == 0:
                await asyncio.sleep(0)
            plan = None if partition in tried else self._plan_if_readable(partition)
            if plan is not None and (best is None or plan.urgency > best[1].urgency):
                best = partition, plan
        return best

    def _plan_if_readable(self, partition: Partition) -> CompactionPlan | None:
        try:
            return self._plan(partition)
        except (OSError, StorageError) as error:
            log.warning("a log cannot be read", extra={"partition": str(partition), "reason": str(error)})
        except Exception as error:
            self._background.failed("planning compaction", error, partition=str(partition))
        return None

    def _plan(self, partition: Partition) -> CompactionPlan | None:
        log_, config = partition.log, partition.config
        if not config.compacted or partition.closed or log_.offline is not None or log_ in self._stopped:
            return None
        self._look_at_replicas(partition)
        first_dirty = self._data.first_dirty_offset(partition.topic, partition.index)
        has_lag_limit = config.max_compaction_lag_ms < _NO_LAG_LIMIT
        if has_lag_limit:
            log_.roll_if_due(self._time.trusted_ms())
        plan = plan_compaction(
            log_.segments(),
            CompactionPolicy(
                min_dirty_ratio=config.min_cleanable_dirty_ratio,
                min_lag_ms=config.min_compaction_lag_ms,
                max_lag_ms=config.max_compaction_lag_ms,
            ),
            now_ms=self._time.trusted_ms(),
            log_start_offset=log_.start_offset,
            first_dirty_offset=first_dirty,
            last_stable_offset=partition.last_stable_offset,
            first_dirty_timestamp=log_.first_timestamp_from(first_dirty) if has_lag_limit else None,
        )
        is_futile = plan is not None and self._futile.get(log_) == plan.end_offset
        return None if is_futile else plan

    # -- cleaning ------------------------------------------------------------------------------------

    async def _try(self, partition: Partition, plan: CompactionPlan) -> bool:
        """Clean a log; True if it is cleaner than it was."""
        self.cleaning = partition
        self._futile.pop(partition.log, None)
        try:
            end_offset = await self._clean(partition, plan)
        except Stopped:
            return False
        except (CorruptBatch, OutputTooLarge) as error:
            self._stopped.add(partition.log)
            self._metrics.compactions_stopped += 1
            log.error("a log cannot be compacted", extra={"partition": str(partition), "reason": str(error)})
            return False
        except (OSError, StorageError) as error:
            log.warning("compaction failed", extra={"partition": str(partition), "reason": str(error)})
            return False
        except Exception as error:
            self._futile[partition.log] = plan.end_offset
            self._background.failed("compaction", error, partition=str(partition))
            return False
        finally:
            self.cleaning = None
        if end_offset <= plan.first_dirty_offset:
            self._futile[partition.log] = plan.end_offset
            log.warning(
                "a log is no cleaner after compaction",
                extra={"partition": str(partition), "from": plan.first_dirty_offset, "to": plan.end_offset},
            )
            return False
        return True

    async def _clean(self, partition: Partition, plan: CompactionPlan) -> int:
        """The offset up to which the log is clean."""
        if partition.closed:
            raise Stopped  # deleted or lent to a thread since this was planned
        log_ = partition.log
        pace = self._pace = Pace(
            self._time.clock, lambda: self._settings.current.cleaner.bytes_per_second_max
        )
        if log_.swap_pending:  # the disk refused to end the last one
            await self._end_swap(partition, has_forgotten=True)
        generation = log_.generation
        segments = log_.sealed_segments(plan.end_offset)
        if not segments:
            raise Stopped  # the log was cut since this was planned
        notes_below = await self._unneeded_notes(partition, plan, segments)
        task = self._task(partition, plan, segments, notes_below)
        cleaner = Cleaner(self._disk, log_.directory, task, pace.spend)
        # A later message may only take the place of an earlier one when it cannot be lost any more.
        await self._in_thread(log_.files.datasync)
        await self._in_thread(self._checkpoint)
        aborted = await self._in_thread(
            partial(log_.aborted_transactions, segments[0].base_offset, plan.end_offset)
        )
        freed_bytes = 0
        for group in await self._in_thread(partial(cleaner.read_keys, aborted)):
            rewritten = await self._in_thread(partial(cleaner.rewrite, group))
            if rewritten is not None:
                await self._swap(partition, rewritten, generation, has_forgotten=task.forgets_deletions)
                freed_bytes += sum(segment.size for segment in rewritten.old) - rewritten.new.size
        await self._note(partition, cleaner.end_offset, generation)
        self._tell(partition, freed_bytes)
        return cleaner.end_offset

    async def _unneeded_notes(
        self, partition: Partition, plan: CompactionPlan, segments: list[Segment]
    ) -> int:
        """The offset below which no delay note is needed, whatever happens."""
        waiting = partition.delayed_messages
        if waiting is None:
            return 0
        kept_from, sync = waiting.kept_from, waiting.sync_index
        if kept_from < plan.end_offset:
            # The notes from there on can go, too, when what waits is carried on: next time.
            held = [segment.size for segment in segments if segment.next_base > kept_from]
            waiting.carry_below(plan.end_offset, sum(held))
        if not kept_from or sync is None:
            return 0
        try:
            # A loss of power may leave an older index, which would have to read the notes that go now.
            await self._in_thread(sync)
        except StorageError:
            return 0  # whoever follows the log says so
        return kept_from

    def _task(
        self, partition: Partition, plan: CompactionPlan, segments: list[Segment], notes_below: int
    ) -> CleaningTask:
        log_, config = partition.log, self._settings.current
        return CleaningTask(
            plan=plan,
            segments=segments,
            log_start_offset=log_.start_offset,
            now_ms=self._time.trusted_ms(),
            delete_retention_ms=self._delete_retention_ms(partition),
            forgets_deletions=self._forgets_deletions(partition),
            last_batches=last_batches(partition.producers),
            config=log_.config,
            buffer_bytes=config.cleaner.buffer_bytes,
            pass_over=log_.unreadable.pass_over,
            notes_below=notes_below,
            readable_end=NO_NEXT if partition.topic_delay is None else partition.topic_delay.offset,
        )

    def _forgets_deletions(self, partition: Partition) -> bool:
        """True if every replica has all that is cleaned, which is committed, on its disk.

        They have it since they are all in sync, and on their disks some syncs later. One that has joined
        since the deletion was given its time, with another disk, say, needs that time, too. And while the
        partition is copied to another, deletions stay: that has the value, perhaps.
        """
        topic = self._metadata.image.topics.get(partition.topic)
        if topic is None or partition.index >= len(topic.partitions):
            return False
        folding = topic.record.folding
        if folding is not None and folding.keeps_deletions(partition.index):
            return False
        self._look_at_replicas(partition)
        if partition.log not in self._in_sync:
            return False
        _, since_ms = self._in_sync[partition.log]
        return self._time.uptime_ms() - since_ms >= self._sync_ms(partition)

    def _look_at_replicas(self, partition: Partition) -> None:
        state = self._metadata.image.partition(partition.topic, partition.index)
        if state is None or not set(state.isr) >= set(state.replicas):
            self._in_sync.pop(partition.log, None)
        elif self._in_sync.get(partition.log, (-1, 0))[0] != state.partition_epoch:
            self._in_sync[partition.log] = state.partition_epoch, self._time.uptime_ms()

    def _sync_ms(self, partition: Partition) -> int:
        """How long other replicas may take until their disks have what they have."""
        state = self._metadata.image.partition(partition.topic, partition.index)
        is_copied = state is not None and len(state.replicas) > 1
        return _SYNCS_WAITED_FOR * self._settings.current.storage.flush_interval_ms if is_copied else 0

    def _delete_retention_ms(self, partition: Partition) -> int:
        """Until a deletion is forgotten, the other replicas have to have it on their disks, too."""
        return max(partition.config.delete_retention_ms, self._sync_ms(partition))

    async def _swap(
        self, partition: Partition, rewritten: Rewritten, generation: int, *, has_forgotten: bool
    ) -> None:
        old, new = rewritten
        if partition.closed or not partition.log.begin_swap(old, new, generation=generation):
            raise Stopped
        await self._end_swap(partition, has_forgotten=has_forgotten)

    async def _end_swap(self, partition: Partition, *, has_forgotten: bool) -> None:
        """`has_forgotten`: the new segment may lack deletions. A replica that was added since that was
        decided may have copied a message from the old segments, and would not get its deletion from the new
        ones."""
        log_ = partition.log
        await self._in_thread(log_.files.sync_names)
        if partition.closed:
            raise Stopped
        if has_forgotten and not self._forgets_deletions(partition) and log_.abandon_swap():
            await self._in_thread(log_.files.sync_names)
            raise Stopped
        if not log_.adopt_swap():
            raise Stopped
        await self._in_thread(log_.files.sync_names)
        if partition.closed:
            raise Stopped
        log_.end_swap()

    async def _note(self, partition: Partition, end_offset: int, generation: int) -> None:
        if not partition.closed:
            write = self._data.checkpoints.write_first_dirty
            key = partition.topic, partition.index
            await self._in_thread(partial(write, *key, partition.log, end_offset, generation=generation))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise Stopped
        return await self._loop.run_in_executor(self._pool, work)

    def _tell(self, partition: Partition, freed_bytes: int) -> None:
        self._metrics.logs_compacted += 1
        self._metrics.compaction_bytes_freed += max(freed_bytes, 0)
        log.info("log compacted", extra={"partition": str(partition), "freed_bytes": freed_bytes})
