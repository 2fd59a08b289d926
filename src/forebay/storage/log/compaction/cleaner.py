"""Compacts a log's sealed segments: reads them, and writes what remains into new ones. Blocks.

A `Cleaner` runs in a thread of its own while the loop appends, reads and even deletes. It touches nothing
that the loop owns: sealed segments do not change, and if one is deleted while it is being read the cleaning
ends with an error and is tried again later. Its output (`rewrite`) becomes part of the log only when the loop
swaps it in (swap.py).

Every batch is checked against its CRC before it is used: damage must not be copied under a new and valid
checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from forebay.core.partition.compaction.batch_filter import (
    BatchFilter,
    LastBatches,
    PassOver,
    TransactionTrack,
    note_keys,
)
from forebay.core.partition.compaction.offset_map import OffsetMap
from forebay.core.partition.compaction.plan import OFFSET_RANGE_MAX, CompactionPlan, group_segments
from forebay.errors import StorageError
from forebay.lazy import dataclass
from forebay.storage.disk import Disk
from forebay.storage.log.config import LogConfig
from forebay.storage.log.recovery.swap_recovery import CLEANED, remove_files
from forebay.storage.log.segment.batch_parts import Hop
from forebay.storage.log.segment.batch_walk import NO_NEXT
from forebay.storage.log.segment.segment import Segment
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import BatchHeader, read_header
from forebay.wire.record_spans import widened
from forebay.wire.varint import Bytes

_WRITE_BYTES = 1 << 20
_POSITION_MAX = 2**31 - 1
"""Positions in the offset index have 32 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningTask:
    """The parameters of a cleaning, as they were when the loop decided on it."""

    plan: CompactionPlan
    segments: Sequence[Segment]
    log_start_offset: int
    now_ms: int
    delete_retention_ms: int
    forgets_deletions: bool
    last_batches: LastBatches
    config: LogConfig
    buffer_bytes: int
    pass_over: PassOver
    notes_below: int = 0
    """No waiting message needs a delay note below this offset."""
    readable_end: int = NO_NEXT
    """No batch is widened beyond it: a read that ends within a batch ends before it."""


class Rewritten(NamedTuple):
    old: list[Segment]
    """The segments that the new one replaces."""
    new: Segment


class Cleaner:
    def __init__(
        self, disk: Disk, directory: str, task: CleaningTask, pace: Callable[[int], None] = lambda _: None
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._task = task
        self._pace = pace
        """Called with every number of bytes read or written; may wait, or raise to stop the cleaning."""
        self._filter: BatchFilter
        self._aborted: dict[int, AbortedTxn] = {}
        self._next: dict[int, list[Segment]] = {}
        """The group that follows another, by the base offset of that one's last segment."""
        self._emptied: list[Segment] = []
        """Segments without remaining batches. They are removed when the next group is swapped in."""
        self.end_offset = task.plan.first_dirty_offset
        """The end of the clean part once every group has been swapped in."""

    def read_keys(self, aborted: Sequence[AbortedTxn]) -> list[list[Segment]]:
        """Find the latest offset of each key; returns the groups of segments to rewrite, in order.

        `aborted`: every aborted transaction with messages in the segments.
        """
        task = self._task
        first_dirty = task.plan.first_dirty_offset
        offsets = OffsetMap(first_dirty, task.buffer_bytes)
        track = TransactionTrack(aborted, first_dirty)
        self._note_keys(offsets, track)
        self.end_offset = offsets.end_offset
        self._aborted = {transaction.last_offset: transaction for transaction in aborted}
        self._filter = BatchFilter(
            offsets=offsets,
            transactions=TransactionTrack(aborted, task.segments[0].base_offset),
            last_batches=task.last_batches,
            last_markers=track.last_markers,
            log_start_offset=task.log_start_offset,
            now_ms=task.now_ms,
            delete_retention_ms=task.delete_retention_ms,
            forgets_deletions=task.forgets_deletions,
            pass_over=task.pass_over,
            max_output_bytes=task.config.decompress_max_bytes,
            notes_below=task.notes_below,
        )
        return self._groups()

    def _note_keys(self, offsets: OffsetMap, track: TransactionTrack) -> None:
        first_dirty, end_offset = self._task.plan.first_dirty_offset, self._task.plan.end_offset
        for segment in self._task.segments:
            if segment.next_base <= first_dirty:
                continue
            for _, batch, header in self._batches(segment):
                if header.last_offset >= first_dirty and not note_keys(
                    batch,
                    header,
                    offsets,
                    track,
                    self._task.pass_over,
                    self._task.config.decompress_max_bytes,
                ):
                    return
            # It was read to its end. There may be a gap before the next segment, and nothing in it is dirty.
            # (The next segment may have gone meanwhile, the end that was planned has not.)
            offsets.end_offset = max(offsets.end_offset, min(segment.next_base, end_offset))

    def _groups(self) -> list[list[Segment]]:
        reached = [segment for segment in self._task.segments if segment.base_offset < self.end_offset]
        config = self._task.config
        groups = group_segments(
            reached, segment_bytes=config.segment_bytes, index_bytes=config.segment_index_bytes
        )
        groups = [group for group in groups if any(segment.size for segment in group)]
        self._next = {group[-1].base_offset: after for group, after in pairwise(groups)}
        return groups

    def rewrite(self, group: Sequence[Segment]) -> Rewritten | None:
        """A new segment for a group, on the disk as `.cleaned`; None when nothing would change.

        A group of which nothing remains is joined to the next one. Otherwise each would leave a segment with
        nothing but a placeholder. A fetch would return that alone, and clients take many such answers in a
        row as an error (librdkafka: MSG_SIZE_TOO_LARGE).
        """
        old = [*self._emptied, *group]
        output = _Output(self._disk, self._directory, old[0].base_offset, self._task.config, self._pace)
        if not self._emptied:
            self._filter.aborted_kept.clear()
        try:
            changed = self._fill(output, group) or bool(self._emptied)
            self._emptied = [] if output.has_batches or not self._may_join(old) else old
            aborted = [self._aborted[offset] for offset in self._filter.aborted_kept]
            if not self._emptied and (changed or len(aborted) != len(group[0].txn_index)):
                return Rewritten(old, output.finish(aborted))
        except BaseException:
            remove_files(self._disk, output.segment)
            raise
        remove_files(self._disk, output.segment)
        return None

    def _may_join(self, group: Sequence[Segment]) -> bool:
        """True if one segment can be made of these and the next group."""
        after = self._next.get(group[-1].base_offset)
        if after is None or after[0].base_offset != group[-1].next_base:
            return False
        return after[-1].next_base - 1 - group[0].base_offset <= OFFSET_RANGE_MAX

    def _fill(self, output: _Output, group: Sequence[Segment]) -> bool:
        """Write what remains of a group; True if anything has changed."""
        changed = len(group) > 1
        may_join = self._may_join([*self._emptied, *group])
        for segment in group:
            for position, batch, header in self._batches(segment):
                is_last = segment is group[-1] and position + header.size >= segment.size
                keeps_place = is_last and (output.has_batches or not may_join)
                left = self._filter.clean(batch, header, keeps_place=keeps_place)
                changed = changed or left is not batch
                if left is None:
                    continue
                may_widen = keeps_place and header.next_offset <= self._task.readable_end
                if may_widen and _is_placeholder(left) and output.widen(header, self._filter):
                    changed = True
                    continue
                output.add(left)
        return changed

    def _batches(self, segment: Segment) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        for position, batch, header in segment.batches():
            self._pace(header.size)
            yield position, batch, header


def _is_placeholder(batch: Bytes) -> bool:
    header = read_header(batch)
    return not header.record_count and header.producer_id < 0 and not header.is_control


class _Output:
    """A segment being written, with its indexes. The last batch is held back, because it may be widened."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, config: LogConfig, pace: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._index_interval_bytes = config.index_interval_bytes
        self._pace = pace
        self._waiting: list[Bytes] = []
        self._last: Bytes | None = None
        self._position = 0
        self._indexed = 0
        self.segment = Segment(disk, directory, base_offset, create=True, suffix=CLEANED)

    @property
    def has_batches(self) -> bool:
        return self._last is not None

    def add(self, batch: Bytes) -> None:
        if self._last is not None:
            self._put(self._last)
        self._last = batch

    def widen(self, emptied: BatchHeader, batches: BatchFilter) -> bool:
        """Widen the last batch to the end of one that lost all its messages; False if it may not.

        Not into another leader epoch: a replica that copies the log learns from batches where each epoch
        begins.
        """
        if self._last is None:
            return False
        header = read_header(self._last)
        if header.partition_leader_epoch != emptied.partition_leader_epoch:
            return False
        if not batches.may_widen(self._last, header):
            return False
        self._last = widened(self._last, header, emptied)
        return True

    def _put(self, batch: Bytes) -> None:
        header = read_header(batch)
        hop = Hop.over(header, self._position)
        self._position += header.size
        if self._position > _POSITION_MAX:
            raise StorageError(f"{self.segment.file.path} would be larger than a segment can be")
        self._indexed = self.segment.note(hop, self._indexed, self._index_interval_bytes)
        self._waiting.append(batch)
        if self._position - self.segment.size >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._pace(self._position - self.segment.size)
        if self._waiting:
            self.segment.file.appendv(self._waiting)
            self._waiting.clear()
        self.segment.size = self._position
        if self.segment.index.full_chunk:
            self.segment.flush_index()

    def finish(self, aborted: Sequence[AbortedTxn]) -> Segment:
        """Make everything durable. Only then may the originals be deleted."""
        if self._last is not None:
            self._put(self._last)
        self._write()
        if aborted:
            self.segment.txn_index.append(aborted)
        self.segment.seal()
        self.segment.datasync(indexes=True)
        self._disk.fsync_dir(self._directory)
        return self.segment
