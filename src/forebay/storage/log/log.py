"""The log of one partition: batches appended at the end, read as ranges of files.

The event loop owns a log. Reading never copies: `read` answers with a `FileRange` for sendfile, of whole
batches in one segment. Consumers at the end of the log are found by a few remembered places (`_hints`),
all others by the offset index. Bytes that were on the disk before this process began are checked against
their CRC before they are first served, off the loop: a range is sent when `is_warm` says so, and after
`warm` (any thread) otherwise, which also brings it into the page cache.

May block: `open`, `datasync`, `close`, `end_below`, `truncate_*`, `scan`, `warm`, and the walks of a search
by time. Only `datasync` and `warm` may be called from another thread while the owner uses the log. `open`
may run in any thread that then hands the log over; `end_below`, `truncate_*` and `scan` may run in any
thread to which the owner has lent the log: it makes no call of its own until it gets the log back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from forebay.clock import Clock, SystemClock, monotonic_ms
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.disk import Disk
from forebay.storage.log.recovery import OpenOptions, open_segments
from forebay.storage.log.segment import Segment
from forebay.storage.log.segments import SegmentInfo
from forebay.storage.log.timestamps import Search, TimestampSearch
from forebay.storage.log.truncation import TruncatingLog
from forebay.storage.log.txn_index import AbortedTxn
from forebay.storage.log.writer import HINTS_MAX, LogConfig
from forebay.wire.batch import HEADER_SIZE, BatchHeader, read_header
from forebay.wire.parts import FileRange

__all__ = ["Log", "LogConfig", "LogSlice"]

_HOPS_MAX = 256
_WARM_BYTES = 1 << 20
_PROBE = "probe.tmp"
_PROBE_BYTES = 64 * 1024


class LogSlice(NamedTuple):
    """What a read found: whole batches in one file, and the offset to go on from."""

    range: FileRange | None
    next_offset: int
    segment: Segment | None = None
    more: bool = False
    """Whether batches that may be read follow: the size wanted, or the end of a segment, left them out."""


class Log(TruncatingLog):
    __slots__ = ()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig | None = None,
        *,
        clock: Clock | None = None,
        start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
        power_lost: bool = True,
    ) -> Log:
        """The log in a directory, made if need be; unless `clean`, checked and repaired. Blocks.

        `power_lost`: unless the stop was clean, what was not synced may be gone.
        """
        config = config or LogConfig()
        disk.mkdirs(directory)
        options = OpenOptions(
            start_offset=start_offset,
            recovery_point=recovery_point,
            clean=clean,
            power_lost=power_lost,
            index_interval_bytes=config.index_interval_bytes,
        )
        opened = open_segments(disk, directory, options)
        log = cls(disk, directory, config, clock or SystemClock(), opened)
        log._refuse_if_lossy()
        if log.end_offset < start_offset and log.offline is None:
            # Deleted messages were lost with the power. Their offsets must not be given out again.
            log.truncate_fully_and_start_at(start_offset)
        log.start_offset = min(max(start_offset, log._segments[0].base_offset), log.end_offset)
        if log.report.missing_offsets:
            # It stays on record: the log must not come back as if nothing had happened.
            log.recovery_point = recovery_point
        else:
            log.recovery_point = log.end_offset if clean else min(recovery_point, log.end_offset)
        log._drop_unsynced_aborted()
        if not clean:
            # The log will grow past them again, with other batches.
            log._snapshots.remove_beyond(log.end_offset)
        return log

    def _refuse_if_lossy(self) -> None:
        missing = self.report.missing_offsets
        if missing:
            self.take_offline(
                f"{self.directory} ends at offset {self.end_offset}, but {missing} more offsets were synced: "
                "its files were damaged or cut. Restore them, or delete recovery-point-offset-checkpoint to "
                "accept the loss"
            )

    def close(self) -> None:
        """Write, sync and close everything, so that the next open need not look. Blocks."""
        try:
            self.settle()
            self._write_early()
            if self.offline is not None and not self._final:
                self._cut_torn()
            self._active.seal()
            if not self._final:
                self.datasync()
        except OSError as error:
            raise StorageError(f"cannot close {self.directory}: {error}") from error
        finally:
            self.forget_swap()
            self._segments.close()

    def discard(self) -> None:
        """Close without writing anything: the log is being deleted, or cannot be used."""
        self.discarded = True
        self._pending.clear()
        self.forget_swap()
        self.take_offline(f"{self.directory} is no longer in use")
        self._segments.close()

    # --- coming back ---------------------------------------------------------------------------------------

    def probe(self) -> None:
        """Find out whether the disk takes data again, else raise OSError. Blocks; any thread."""
        path = f"{self.directory}/{_PROBE}"
        file = self._disk.open(path, create=True)
        try:
            file.appendv([bytes(_PROBE_BYTES)])
        finally:
            file.close()
            self._disk.remove(path)

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
        return LogSlice(FileRange(segment.file, position, length), next_offset, segment, more)

    def headers(self, found: LogSlice) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch of a slice. Raises StorageError."""
        if found.range is None or found.segment is None:
            return
        end = found.range.position + found.range.length
        try:
            for hop in found.segment.hops(found.range.position, min_offset=0):
                if hop.position >= end:
                    return
                yield hop.position, read_header(found.range.file.pread(HEADER_SIZE, hop.position))
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error

    def is_warm(self, found: LogSlice) -> bool:
        """Whether a slice may be sent at once: its bytes are checked and in the page cache."""
        part, segment = found.range, found.segment
        if part is None or segment is None:
            return True
        try:
            return segment.trusts(part.position, part.length) and part.file.cached(part.position, part.length)
        except OSError:
            return False  # `warm` will tell what is wrong

    def warm(self, found: LogSlice) -> None:
        """Read a slice into the page cache and check its CRCs if need be. Blocks; any thread."""
        part, segment = found.range, found.segment
        if part is None or segment is None:
            return
        try:
            if segment.trusts(part.position, part.length):
                for position in range(part.position, part.position + part.length, _WARM_BYTES):
                    part.file.pread(_WARM_BYTES, position)
            else:
                segment.verify(part.position, part.length)
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error

    def _write_for_read(self) -> None:
        with suppress(
            StorageError
        ):  # write_pending will tell; what was written before can be read all the same
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
        """Where the first batch begins that ends at `offset` or later."""
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

    def scan(self, from_offset: int) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Every batch from the one that holds the offset, in chunks of bounded size. Blocks.

        Raises StorageError when the disk does not give them.
        """
        self._write_early()
        for segment in self._segments.from_offset(from_offset):
            try:
                first = segment.find(from_offset)
                if first is not None:
                    for _, batch, header in segment.batches(first.position):
                        yield batch, header
            except OSError as error:
                raise StorageError(f"cannot read {self.directory}: {error}") from error

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

    def restore_aborted(self, aborted: AbortedTxn) -> None:
        """Enter a transaction found while the log is read again after a crash, unless it is there. Blocks."""
        index = self._segments.from_offset(aborted.last_offset)[0].txn_index
        last = index.last()
        if last is None or last.last_offset < aborted.last_offset:
            index.append([aborted])
            self.has_aborted = True

    def _drop_unsynced_aborted(self) -> None:
        """What was not synced is not believed; it will be restored from the log."""
        offset = min(self.recovery_point, self.end_offset)
        for segment in self._segments.from_offset(offset):
            if segment.txn_index.file.size():
                segment.txn_index.keep_below(offset)

    # --- by time -------------------------------------------------------------------------------------------

    def search_timestamp(self, timestamp: int) -> Search:
        """Look for (timestamp, offset) of the first record that is not older."""
        return self._search().first_from(timestamp)

    def search_largest_timestamp(self) -> Search:
        """Look for (timestamp, offset) of the first record with the largest timestamp."""
        return self._search().largest()

    def _search(self) -> TimestampSearch:
        self._write_early()
        return TimestampSearch(list(self._segments), self.start_offset, self.unreadable)

    # --- the front and the back ----------------------------------------------------------------------------

    @property
    def begin_offset(self) -> int:
        """Where the first segment begins: at `start_offset`, or before it if only a part of it is deleted."""
        return self._segments[0].base_offset

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
        """Let the log begin at `offset` and delete the segments below. The caller checkpoints the start."""
        if offset > self.end_offset:
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            self._start_at(offset)
            self._delete(sum(segment.next_base <= offset for segment in self._segments))

    def delete_front(self, count: int) -> None:
        """Delete the first segments, never the active one. Their files go when `reap` says so."""
        count = min(count, len(self._segments) - 1)
        if count > 0:
            self._start_at(max(self.start_offset, self._segments[count].base_offset))
            self._delete(count)

    def _start_at(self, offset: int) -> None:
        self.start_offset = offset
        if self.on_start is not None:
            self.on_start(offset)

    def _delete(self, count: int) -> None:
        if count:
            self._hints, self._old_hints = {}, {}
            self._segments.delete_front(count, monotonic_ms(self._clock) + self._config.file_delete_delay_ms)

    def reap(self) -> list[str]:
        """Files of deleted segments that no reader should still use; the caller removes them, in any
        thread."""
        return self._segments.reap(monotonic_ms(self._clock))

    # --- producer snapshots --------------------------------------------------------------------------------

    def write_snapshot(self, data: bytes, *, sync: bool = False) -> None:
        """Keep the producers' state as of the end of the log, and of the older ones what may be needed."""
        self._snapshots.write(self.end_offset, data, sync=sync, recovery_point=self.recovery_point)

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        """(offset, state) of the snapshots not beyond the end, newest first: take the first that is whole."""
        return self._snapshots.newest_first(self.end_offset)
