"""One segment of a log: a run of record batches in a `.log` file and the two sparse indexes beside it.

Batches are found by hopping from header to header, beginning at the place the offset index names. Every
hop is checked (magic, lengths, growing offsets), so a damaged file or a wrong index shows as
`CorruptBatch` and never as bytes that begin in the middle of a batch. A wrong index is rebuilt on the
spot: it holds nothing that the log does not.

Bytes that this process has not checked itself (`trusted_from` says where its own begin) are checked
against their CRC before they are first served: `verify`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from forebay.errors import ErrorCode, StorageError
from forebay.storage.disk import Disk, File
from forebay.storage.log.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from forebay.storage.log.txn_index import TxnIndex
from forebay.wire.batch import HEADER_SIZE, MAGIC, BatchHeader, crc_ok, read_header

log = logging.getLogger(__name__)

NO_TIMESTAMP = -1
UNKNOWN_TIMESTAMP = -2
MAX_RELATIVE_OFFSET = 2**31 - 1
NO_NEXT = 2**63
"""The active segment has no segment after it: no offset reaches this."""

DELETED = ".deleted"

_PREFIX = Struct(">qiibIhiqq")
_LENGTH_PREFIX = 12
_HOP_CHUNK_BYTES = 8 << 10
_READ_CHUNK_BYTES = 1 << 20


class CorruptBatch(StorageError):
    """The file holds something else than the batch that should be there."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {why}")
        self.code = ErrorCode.CORRUPT_MESSAGE
        self.position = position


class Hop(NamedTuple):
    """What must be known of a batch to pass over it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int


class Tail(NamedTuple):
    """What must be known of a segment to go on appending to it."""

    next_offset: int
    indexed_position: int
    first_timestamp: int | None
    """The first batch's largest timestamp; None while the segment is empty."""


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment:
    __slots__ = (
        "base_offset",
        "file",
        "index",
        "largest",
        "max_timestamp",
        "max_timestamp_offset",
        "next_base",
        "older",
        "size",
        "time_index",
        "trusted_from",
        "txn_index",
        "verified",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, create: bool = False, suffix: str = ""
    ) -> None:
        stem = f"{directory}/{segment_name(base_offset)}"
        if create:
            disk.remove(f"{stem}.index{suffix}")
            disk.remove(f"{stem}.timeindex{suffix}")
            disk.remove(f"{stem}.txnindex{suffix}")
        self.base_offset = base_offset
        self.next_base = NO_NEXT
        self.file: File = disk.open(f"{stem}.log{suffix}", create=create)
        self.index = SparseIndex(disk.open(f"{stem}.index{suffix}"), OFFSET_ENTRY)
        self.time_index = SparseIndex(disk.open(f"{stem}.timeindex{suffix}"), TIME_ENTRY)
        self.txn_index = TxnIndex(disk.open(f"{stem}.txnindex{suffix}"), base_offset)
        self.size = self.file.size()
        self.trusted_from = self.size
        self.verified = (0, 0)
        self.max_timestamp = NO_TIMESTAMP if create else UNKNOWN_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.older = (0, NO_NEXT)
        """The result of a search by time, (bytes, timestamp): in the first that many bytes, every record from
        the log start on is older than the timestamp."""
        self.largest: tuple[int, tuple[int, int] | None] | None = None
        """Also (bytes, result): the time and offset of the record with the largest time in the first that
        many bytes."""

    # --- walking -------------------------------------------------------------------------------------------

    def hops(self, position: int = 0, min_offset: int | None = None) -> Iterator[Hop]:
        """Batch after batch to the written end, headers only. Raises CorruptBatch where they do not fit."""
        expected = self.base_offset if min_offset is None else min_offset
        end = self.size
        chunk, chunk_start = b"", position
        while position < end:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = self._pread(_HOP_CHUNK_BYTES, position), position, 0
            hop = self._hop(chunk, at, position, expected)
            yield hop
            position += hop.size
            expected = hop.last_offset + 1

    def _hop(self, chunk: bytes | memoryview, at: int, position: int, expected: int) -> Hop:
        if len(chunk) - at < HEADER_SIZE:
            raise CorruptBatch(self.file.path, position, "a batch header is cut short")
        base_offset, length, _, magic, _, _, last_offset_delta, base_timestamp, max_timestamp = (
            _PREFIX.unpack_from(chunk, at)
        )
        size = length + _LENGTH_PREFIX
        if magic != MAGIC or size < HEADER_SIZE or last_offset_delta < 0 or position + size > self.size:
            raise CorruptBatch(self.file.path, position, "this is not the header of a whole batch")
        last_offset = base_offset + last_offset_delta
        too_far = last_offset >= self.next_base or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        if base_offset < expected or too_far:
            raise CorruptBatch(self.file.path, position, f"offset {base_offset} does not belong here")
        return Hop(position, size, base_offset, last_offset, base_timestamp, max_timestamp)

    def batches(
        self, position: int = 0, *, end: int | None = None, min_offset: int | None = None
    ) -> Iterator[tuple[int, memoryview, BatchHeader]]:
        """Whole batches with their bytes, a chunk in memory at a time. Headers are checked, CRCs are not."""
        end = self.size if end is None else end
        expected = self.base_offset if min_offset is None else min_offset
        chunk, chunk_start = memoryview(b""), position
        while position < end:
            at = position - chunk_start
            header_there = at + HEADER_SIZE <= len(chunk)
            size = self._hop(chunk, at, position, expected).size if header_there else 0
            if not header_there or at + size > len(chunk):
                wanted = max(_READ_CHUNK_BYTES, size)
                chunk, chunk_start = memoryview(self._pread(wanted, position)), position
                if len(chunk) < max(size, HEADER_SIZE):
                    raise CorruptBatch(self.file.path, position, "a batch is cut short")
                continue
            header = read_header(chunk, at)
            yield position, chunk[at : at + size], header
            position += size
            expected = header.last_offset + 1

    def _pread(self, length: int, position: int) -> bytes:
        return self.file.pread(min(length, self.size - position), position)

    # --- finding -------------------------------------------------------------------------------------------

    def find(self, offset: int) -> Hop | None:
        """The first batch that ends at `offset` or later; None when there is none in this segment."""
        for hop in self.hops(self._indexed(offset), self.base_offset):
            if hop.last_offset >= offset:
                return hop
        return None

    def position_before(self, offset: int) -> int:
        """Where a batch begins from which walking on meets every batch that ends at `offset` or later."""
        entry = self.index.floor(offset - self.base_offset)
        return 0 if entry is None else self._checked(entry) or 0

    def position_after(self, position: int) -> int | None:
        """Where the next batch begins that the index knows: the way on after damage."""
        while (entry := self.index.next_value(position)) is not None:
            position = entry[1]
            if self._checked(entry) is not None:
                return position
        return None

    def end_below(self, offset: int) -> int:
        """Where the last batch ends that lies wholly below `offset`; the base offset if there is none."""
        end = self.base_offset
        for hop in self.hops(self._indexed(offset - 1), self.base_offset):
            if hop.last_offset >= offset:
                break
            end = hop.last_offset + 1
        return end

    def _indexed(self, offset: int) -> int:
        """The position of the last batch in the index that ends at `offset` or before; 0 if there is none."""
        entry = self.index.floor(offset - self.base_offset)
        if entry is None:
            return 0
        position = self._checked(entry)
        if position is None:
            self._repair_index()
            return 0
        return position

    def boundary(self, position_max: int) -> tuple[int, int] | None:
        """The last batch in the index that begins at `position_max` or before: (its offset, position)."""
        entry = self.index.floor_value(position_max)
        if entry is None:
            return None
        position = self._checked(entry)
        if position is None:
            self._repair_index()
            return None
        return int.from_bytes(self.file.pread(8, position), "big"), position

    def _checked(self, entry: tuple[int, int]) -> int | None:
        """The position an index entry names, if the batch that the entry speaks of is really there."""
        relative, position = entry
        if not 0 <= position < self.size:
            return None
        data = self.file.pread(HEADER_SIZE, position)
        try:
            hop = self._hop(data, 0, position, self.base_offset)
        except CorruptBatch:
            return None
        return position if hop.last_offset - self.base_offset == relative else None

    # --- the indexes and what is known of the end ----------------------------------------------------------

    def note(self, hop: Hop, indexed_position: int, index_interval_bytes: int) -> int:
        """Enter a batch into the indexes as appending it did; returns the position of the last entry."""
        if hop.max_timestamp > self.max_timestamp:
            self.max_timestamp = hop.max_timestamp
            self.max_timestamp_offset = hop.last_offset
        if hop.position - indexed_position > index_interval_bytes:
            self.add_entry(hop.last_offset, hop.position)
            return hop.position
        return indexed_position

    def add_entry(self, last_offset: int, position: int) -> None:
        self.index.append(last_offset - self.base_offset, position)
        self.add_time_entry()

    def add_time_entry(self) -> None:
        """Record the largest timestamp so far, if it has grown since the last entry."""
        last = self.time_index.last()
        if self.max_timestamp > (NO_TIMESTAMP if last is None else last[0]):
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def cut_indexes(self, end_offset: int) -> None:
        """Drop what the indexes say of batches that were cut off: the file ends before this offset now."""
        self.txn_index.truncate(end_offset)
        self.index.cut(self.size)
        self.time_index.cut(end_offset - self.base_offset)

    def forget_index(self) -> None:
        self.index.clear()
        self.time_index.clear()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset

    def rebuild_index(self, index_interval_bytes: int = 4096) -> Tail:
        """Make both indexes anew from the batches. Reads every header: may block."""
        self.forget_index()
        return self._note_all(0, self.base_offset, 0, index_interval_bytes)

    def _repair_index(self) -> None:
        log.warning("index is wrong and is rebuilt", extra={"path": self.file.path})
        self.rebuild_index()

    def load_tail(self, index_interval_bytes: int) -> Tail:
        """What is needed to append, from the last index entry on; the whole segment only if that is wrong."""
        entry = self.index.last()
        last_time = self.time_index.last()
        position = 0 if entry is None else self._checked(entry)
        time_is_missing = entry is not None and last_time is None and self.max_timestamp != NO_TIMESTAMP
        if position is None or time_is_missing or not self._time_fits(last_time):
            return self.rebuild_index(index_interval_bytes)
        self.max_timestamp, relative = last_time or (NO_TIMESTAMP, 0)
        self.max_timestamp_offset = self.base_offset + relative
        return self._note_all(position, self.base_offset, position, index_interval_bytes)

    def _note_all(self, position: int, min_offset: int, indexed: int, index_interval_bytes: int) -> Tail:
        next_offset = self.base_offset
        for hop in self.hops(position, min_offset):
            indexed = self.note(hop, indexed, index_interval_bytes)
            self._flush_full_chunks()
            next_offset = hop.last_offset + 1
        return Tail(next_offset, indexed, self.first_timestamp())

    def _flush_full_chunks(self) -> None:
        if self.index.full_chunk:
            self.flush_index()

    def _time_fits(self, entry: tuple[int, int] | None) -> bool:
        """Whether the batch that a time entry speaks of is there and has that timestamp."""
        if entry is None:
            return True
        offset = self.base_offset + entry[1]
        hop = self.find(offset) if entry[1] >= 0 else None
        return hop is not None and hop.base_offset <= offset and hop.max_timestamp == entry[0]

    def first_timestamp(self) -> int | None:
        try:
            return next((hop.max_timestamp for hop in self.hops()), None)
        except CorruptBatch:
            return self.max_timestamp

    def largest_timestamp(self) -> int:
        """The largest timestamp of any batch, from the last entry of the time index; -1 for none."""
        if self.max_timestamp == UNKNOWN_TIMESTAMP:
            last = self.time_index.last()
            if last is not None and self._may_believe(last):
                self.max_timestamp, relative = last
                self.max_timestamp_offset = self.base_offset + relative
            else:
                self._repair_time_index()
        return self.max_timestamp

    def _may_believe(self, entry: tuple[int, int]) -> bool:
        """Whether nothing speaks against a time entry; damage before its batch does not."""
        try:
            return self._time_fits(entry)
        except CorruptBatch as bad:
            log.error("segment damaged: its time index is believed", extra={"why": str(bad)})
            return True

    def _repair_time_index(self) -> None:
        try:
            self._repair_index()
        except CorruptBatch as bad:
            log.error("segment damaged: its time index is made of what is readable", extra={"why": str(bad)})
        self.seal()

    def flush_index(self) -> None:
        # In this order: of batches behind the last entry of the offset index the times are read again.
        self.time_index.flush()
        self.index.flush()

    def seal(self) -> None:
        """Write the indexes to their end: the last time entry holds the segment's largest timestamp."""
        self.add_time_entry()
        self.flush_index()

    def datasync(self, *, indexes: bool) -> None:
        self.file.datasync()
        self.txn_index.datasync()
        if indexes:
            for file in (self.index.file, self.time_index.file):
                if file.size():
                    file.datasync()

    # --- trust ---------------------------------------------------------------------------------------------

    def trusts(self, position: int, length: int) -> bool:
        """Whether these bytes were written or checked by this process."""
        if position >= self.trusted_from:
            return True
        start, end = self.verified
        return start <= position and min(position + length, self.trusted_from) <= end

    def verify(self, position: int, length: int) -> None:
        """Check the CRC of every batch in the range, once. Blocks; any thread."""
        end = min(position + length, self.trusted_from)
        for at, batch, header in self.batches(position, end=end):
            if not crc_ok(batch, 0, header.size):
                raise CorruptBatch(
                    self.file.path, at, f"the batch at offset {header.base_offset} fails its CRC"
                )
        start, known = self.verified
        if position <= known and start <= position:
            self.verified = (start, max(known, end))
        else:
            self.verified = (position, end)

    # --- the files -----------------------------------------------------------------------------------------

    @property
    def index_bytes(self) -> int:
        return self.index.file.size()

    def files(self) -> list[File]:
        """The log first."""
        return [self.file, self.index.file, self.time_index.file, self.txn_index.file]

    def mark_deleted(self) -> None:
        """Rename the files as Kafka does; readers that hold a range of them can finish."""
        for file in self.files():
            if not file.path.endswith(DELETED):
                file.rename(file.path + DELETED)

    def close(self) -> None:
        for file in self.files():
            file.close()
