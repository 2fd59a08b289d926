"""The log of one partition, for the event loop that owns it: batches appended, read as file ranges.

Nothing here waits for the device for long. Operations that do are in `LogFiles`, a separate object
(`Log.files`), so that a call shows that it belongs into a thread.

Reading never copies: `read` answers with a `FileRange` for sendfile, of whole batches in one segment. Reads
at the end of the log are located by a few remembered positions (`_hints`), all others by the offset index.
Bytes that were on the disk before this process began are checked against their CRC before they are first
served: a range is sent when `is_warm` says so, and after `LogFiles.warm` otherwise, which also brings it into
the page cache. A scan of many batches and a search by time find on the loop where to read, and leave the
reading to a thread (`stretches`, timestamp_search.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from forebay.clock import Clock, monotonic_ms
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.disk import Disk
from forebay.storage.log.compaction.swap import SwappingLog
from forebay.storage.log.config import LogConfig
from forebay.storage.log.files import LogFiles
from forebay.storage.log.recovery.log_recovery import Opened
from forebay.storage.log.segment.segment import Segment
from forebay.storage.log.segment.segment_list import LogSlice, SegmentInfo
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.storage.log.timestamp_search import Search, TimestampSearch
from forebay.storage.log.unreadable_batches import UnreadableBatches
from forebay.storage.log.writer import HINTS_MAX
from forebay.wire.batch import BatchHeader
from forebay.wire.parts import FileRange

_HOPS_MAX = 256


class Log(SwappingLog):
    __slots__ = ("discarded", "files", "keeps_batches", "on_start", "report", "unreadable")

    def __init__(self, disk: Disk, directory: str, config: LogConfig, clock: Clock, opened: Opened) -> None:
        super().__init__(disk, directory, config, clock, opened)
        self.files = LogFiles(self)
        """The blocking operations, for threads."""
        self.report = opened.report
        self.discarded = False
        """Deleted or given up: none of its state may be written to the disk any more."""
        self.on_start: Callable[[int], None] | None = None
        """Called with the start offset when messages were deleted from the front."""
        self.keeps_batches: Callable[[int], bool] | None = None
        """Asked, with the offset that is to be the first, before batches are deleted that may tell what no
        synced file does: true while they do. Whoever answers so sees to it that they need not be kept for
        long."""
        self.unreadable = UnreadableBatches(directory)

    def discard(self) -> None:
        """Close without writing anything: the log is being deleted, or cannot be used."""
        self.discarded = True
        self._pending.clear()
        self.forget_swap()
        self.take_offline(f"{self.directory} is no longer in use")
        self._segments.close()

    # --- appending -----------------------------------------------------------------------------------------

    def append_together(self, batches: Sequence[tuple[memoryview, BatchHeader]]) -> None:
        """Queue batches so that one call writes all of them: into one segment, however large they are."""
        first, last = batches[0][1], batches[-1][1]
        size = sum(len(batch) for batch, _ in batches)
        max_timestamp = max(header.max_timestamp for _, header in batches)
        if (
            self._position + size > self._roll_bytes
            or max_timestamp > self._roll_timestamp
            or last.last_offset > self._roll_offset
            or first.base_offset < self.end_offset
        ):
            self._make_ready(size, first.base_offset, last.last_offset, max_timestamp)
        segment = self._active
        for batch, header in batches:  # like `append_at`, but without the limits
            if header.max_timestamp > segment.max_timestamp:
                segment.max_timestamp = header.max_timestamp
                segment.max_timestamp_offset = header.last_offset
            if self._position > self._index_at:
                self._add_index_entry(header.last_offset, self._position)
            self._pending.append(batch)
            self._position += len(batch)
            self.end_offset = header.last_offset + 1

    # --- coming back ---------------------------------------------------------------------------------------

    def come_back(self) -> None:
        """Take appends again after a `probe`, unless the log is offline for good. Raises StorageError."""
        if self.offline is not None and not self.refuses:
            self._try_again()

    # --- reading -------------------------------------------------------------------------------------------

    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int | None = None, min_one: bool = True
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, below `upper_offset`, of at most `max_bytes`.

        With `min_one` the first batch is given however large it is. Nothing to give: a slice without range.
        """
        if self._pending:
            self._write_for_read()
        end = self.end_offset
        if not self.start_offset <= offset <= end:
            raise self._out_of_range(offset)
        if upper_offset is not None and upper_offset < end:
            end = upper_offset
        if offset >= end:
            return self._nothing(offset)
        place = self._hints.get(offset) or self._old_hints.get(offset)
        try:
            if place is None:
                place = self._locate(offset)
            segment, position = place
            if end >= segment.next_base:
                limit, next_offset = segment.size, segment.next_base
            elif end == self.end_offset:
                limit, next_offset = segment.size, end
            else:
                limit, next_offset = self._limit(segment, end), end
            length, more = limit - position, next_offset < end
            if length > max_bytes:
                whole = length
                length, next_offset = self._cut(segment, position, max_bytes, min_one)
                more = more or length < whole
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error
        if length <= 0:
            return LogSlice(None, offset, None, more)
        return LogSlice(
            FileRange(segment.lent or segment.lend(), position, length), next_offset, segment, more
        )

    def headers(self, found: LogSlice) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch of a slice. Raises StorageError."""
        if found.range is None or found.segment is None:
            return
        part = found.range
        try:
            yield from found.segment.headers(part.position, part.position + part.length)
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error

    def expect_read_after(self, found: LogSlice) -> None:
        """The next read will most likely begin where this slice of whole batches ends.

        Unchecked headers may be damaged, and must not mislead other readers.
        """
        part, segment = found.range, found.segment
        if part is not None and segment is not None and segment.trusts(part.position, part.length):
            self._remember(found.next_offset, segment, part.position + part.length)

    def batch_at(self, offset: int) -> int:
        """The base offset of the batch that holds an offset. Raises StorageError."""
        try:
            segment, position = self._locate(offset)
            first = next(segment.hops(position), None)
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error
        return offset if first is None else max(min(first.base_offset, offset), self.start_offset)

    def is_warm(self, found: LogSlice) -> bool:
        """True if a slice may be sent at once: its bytes are checked and in the page cache."""
        part, segment = found.range, found.segment
        if part is None or segment is None:
            return True
        try:
            return segment.trusts(part.position, part.length) and part.file.cached(part.position, part.length)
        except OSError:
            return False  # `warm` will report the error

    def _write_for_read(self) -> None:
        with suppress(StorageError):  # `write_pending` will report it
            self._write_early()

    def _out_of_range(self, offset: int) -> KafkaError:
        if offset > self.end_offset and self.report.missing_offsets:
            return StorageError(self.offline or "synced messages are missing")
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not in the log, which holds {self.start_offset} to {self.end_offset}",
        )

    def _nothing(self, offset: int) -> LogSlice:
        if self._final and self.report.missing_offsets and offset == self.end_offset:
            raise StorageError(self.offline or "synced messages are missing")
        return LogSlice(None, offset)

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """The position of the first batch that ends at `offset` or later."""
        for segment in self._segments.from_offset(offset):
            if offset <= segment.base_offset and segment.size:
                return segment, 0
            hop = segment.find(offset)
            if hop is not None:
                return segment, hop.position
        return self._active, self._active.size

    def _limit(self, segment: Segment, end: int) -> int:
        """The position in the segment where the batches from offset `end` on begin."""
        place = self._hints.get(end) or self._old_hints.get(end)
        if place is not None:
            return place[1]
        hop = segment.find(end)
        position = segment.size if hop is None else hop.position
        self._remember(end, segment, position)
        return position

    def _cut(self, segment: Segment, position: int, max_bytes: int, min_one: bool) -> tuple[int, int]:
        """The (length, next offset) of the whole batches that fit, by the index or else by their headers."""
        boundary = segment.boundary(position + max_bytes)
        if boundary is not None and boundary[1] > position:
            next_offset, end = boundary
        else:
            next_offset, end = self._cut_by_headers(segment, position, max_bytes, min_one)
        self._remember(next_offset, segment, end)
        return end - position, next_offset

    def _cut_by_headers(
        self, segment: Segment, position: int, max_bytes: int, min_one: bool
    ) -> tuple[int, int]:
        next_offset, end = -1, position
        for number, hop in enumerate(segment.hops(position)):
            fits = hop.position + hop.size <= position + max_bytes
            if number == _HOPS_MAX or not (fits or (min_one and number == 0)):
                break
            next_offset, end = hop.last_offset + 1, hop.position + hop.size
        return next_offset, end

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if position < segment.size:
            self._hints[offset] = (segment, position)
            if len(self._hints) > HINTS_MAX:
                self._old_hints, self._hints = self._hints, {}

    # --- aborted transactions ------------------------------------------------------------------------------

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with messages in [offset, upper_offset). May read from the disk."""
        found: list[AbortedTxn] = []
        if not self.has_aborted:
            return found
        try:
            for segment in self._segments.from_offset(offset):
                if len(segment.txn_index):
                    entries, complete = segment.txn_index.overlapping(offset, upper_offset)
                    found += entries
                    if complete:
                        break
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error
        return found

    # --- by time -------------------------------------------------------------------------------------------

    def search_timestamp(self, timestamp: int) -> Search:
        """Look for (timestamp, offset) of the first record that is not older."""
        return self._search(self.start_offset).first_from(timestamp)

    def search_message(self, timestamp: int, from_offset: int) -> Search:
        """Look for (timestamp, offset) of the first message from an offset on that is not older."""
        start = max(from_offset, self.start_offset)
        return self._search(start, messages_only=True).first_from(timestamp)

    def search_largest_timestamp(self) -> Search:
        """Look for (timestamp, offset) of the first record with the largest timestamp."""
        return self._search(self.start_offset).largest()

    def _search(self, start_offset: int, *, messages_only: bool = False) -> TimestampSearch:
        self._write_early()
        return TimestampSearch(
            list(self._segments),
            start_offset,
            self.unreadable,
            self.config.decompress_max_bytes,
            messages_only=messages_only,
        )

    # --- the front and the back ----------------------------------------------------------------------------

    def segments(self) -> list[SegmentInfo]:
        return [
            SegmentInfo(
                base_offset=segment.base_offset,
                next_offset=min(segment.next_base, self.end_offset),
                size=segment.size,
                largest_timestamp=segment.largest_timestamp(),
            )
            for segment in self._segments
        ]

    def advance_start(self, offset: int) -> None:
        """Let the log begin at `offset` and delete the segments below, or have retention do it later
        (`keeps_batches`). The caller checkpoints the start."""
        if offset > self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            self._start_at(offset)
            below = self._deletable(sum(segment.next_base <= offset for segment in self._segments))
            if below:
                self._delete(below)

    def delete_front(self, count: int) -> int:
        """Delete the first segments, never the active one, and return how many: fewer if some must be kept a
        little longer (`keeps_batches`). Their files are removed when `reap` lists them."""
        count = self._deletable(min(count, len(self._segments) - 1))
        if count <= 0:
            return 0
        self._start_at(max(self.start_offset, self._segments[count].base_offset))
        self._delete(count)
        return count

    def expect_new_file(self) -> None:
        """The next sync will make a file beside the log: it is to run even if nothing was written."""
        with self._unsynced.lock:
            self._unsynced.new_names = True

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        if self.on_start is not None:
            self.on_start(offset)

    def _deletable(self, count: int) -> int:
        """How many of the first segments may be deleted now.

        If not all of them, then those before synced batches; and else those of which a synced snapshot tells.
        """
        if count <= 0 or self.keeps_batches is None:
            return count
        synced = self._before_synced(count)
        for number in sorted({count, synced} - {0}, reverse=True):
            if self._tells_enough(number) or not self.keeps_batches(self._segments[number].base_offset):
                return number
        return next((fewer for fewer in range(synced - 1, 0, -1) if self._tells_enough(fewer)), 0)

    def _before_synced(self, count: int) -> int:
        """How many of the first segments are followed by a synced batch, at most this many."""
        while count and self._segments[count].base_offset >= self.recovery_point:
            count -= 1
        return count

    def _tells_enough(self, count: int) -> bool:
        """True if there is a synced batch behind the first segments, and a snapshot of their producers."""
        begin = self._segments[count].base_offset
        return begin < self.recovery_point and self.tells_producers_before(begin)

    def _delete(self, count: int) -> None:
        self._hints, self._old_hints = {}, {}
        self._segments.delete_front(count, monotonic_ms(self._clock) + self.config.file_delete_delay_ms)
        if self.config.deleted_bytes_max is not None:
            self._segments.bound_deleted(self.config.deleted_bytes_max)
        self._tend_deleted()
        if self.tended is not None and self.is_reap_due:
            self.tended.on_due()

    def reap(self) -> list[str]:
        """Files of deleted segments that no reader should still use; the caller removes them, in any
        thread."""
        return self._segments.reap(monotonic_ms(self._clock), unread=self._removes_unread)

    # --- producer snapshots --------------------------------------------------------------------------------

    def write_snapshot(self, data: bytes) -> None:
        """Keep the producers' state as of the end of the log, and the older snapshots that may be needed.

        It is synced with the log, by the next sync: batches may be deleted that nothing else tells of. One
        that a power failure damages before that is skipped.
        """
        self.keep_snapshot(data, sync=False)
