"""One segment of a log: a run of record batches in a `.log` file and the sparse indexes beside it.

Batches are found by hopping from header to header (batch_file.py), beginning at the place the offset index
names. A wrong index is rebuilt at once: it holds nothing that the log does not.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import NamedTuple

from forebay.storage.disk import Disk, File
from forebay.storage.log.segment.batch_file import BatchFile
from forebay.storage.log.segment.batch_parts import CorruptBatch, Hop
from forebay.storage.log.segment.batch_walk import NO_NEXT
from forebay.storage.log.segment.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from forebay.storage.log.segment.txn_index import TxnIndex
from forebay.wire.batch import HEADER_SIZE

log = logging.getLogger(__name__)

_ENTRIES_TRIED_MAX = 16
"""The number of index entries that are tried before the search begins at the start of the file."""

NO_TIMESTAMP = -1
UNKNOWN_TIMESTAMP = -2
DELETED = ".deleted"


class Tail(NamedTuple):
    """The state of a segment that is needed to continue appending."""

    next_offset: int
    indexed_position: int
    first_timestamp: int | None
    """The first batch's largest timestamp; None while the segment is empty."""


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


class Segment(BatchFile):
    __slots__ = (
        "index",
        "largest",
        "max_timestamp",
        "max_timestamp_offset",
        "older",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        create: bool = False,
        in_new_directory: bool = False,
        suffix: str = "",
    ) -> None:
        stem = f"{directory}/{segment_name(base_offset)}"
        if create:
            for kind in () if in_new_directory else ("index", "timeindex"):
                disk.remove(f"{stem}.{kind}{suffix}")
            # Before the log: a log without this file has lost it.
            txn_file = disk.open(f"{stem}.txnindex{suffix}", create=True)
        super().__init__(disk.open(f"{stem}.log{suffix}", create=create), base_offset)
        # After `create` there are no such files: what there was has just been removed.
        self.index = SparseIndex(disk.open(f"{stem}.index{suffix}", absent=create), OFFSET_ENTRY)
        self.time_index = SparseIndex(disk.open(f"{stem}.timeindex{suffix}", absent=create), TIME_ENTRY)
        self.txn_index = TxnIndex(txn_file if create else disk.open(f"{stem}.txnindex{suffix}"), base_offset)
        self.max_timestamp = NO_TIMESTAMP if create else UNKNOWN_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.older = (0, NO_NEXT)
        """The result of a search by time, (bytes, timestamp): in the first that many bytes, every record from
        the log start on is older than the timestamp."""
        self.largest: tuple[int, tuple[int, int] | None] | None = None
        """Also (bytes, result): the time and offset of the record with the largest time in the first that
        many bytes."""

    # --- finding -------------------------------------------------------------------------------------------

    def find(self, offset: int) -> Hop | None:
        """The first batch that ends at `offset` or later; None when there is none in this segment."""
        for hop in self.hops(self._indexed(offset), self.base_offset):
            if hop.last_offset >= offset:
                return hop
        return None

    def position_before(self, offset: int) -> int:
        """The start of a batch from which a walk meets every batch that ends at `offset` or later.

        Damaged or unreadable batches are skipped: an earlier one will do.
        """
        relative = offset - self.base_offset
        for _ in range(_ENTRIES_TRIED_MAX):
            entry = self.index.floor(relative)
            if entry is None:
                break
            with suppress(OSError):
                position = self._checked(entry)
                if position is not None:
                    return position
            relative = entry[0] - 1
        return 0

    def position_after(self, _position: int) -> int | None:
        """The start of the next batch that the index knows: the way to continue after damage."""
        while (entry := self.index.next_value(_position)) is not None:
            _position = entry[1]
            if self._checked(entry) is not None:
                return _position
        return None

    def end_below(self, offset: int) -> int:
        """The end of the last batch that lies wholly below `offset`; the base offset if there is none."""
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
        """The position of an index entry, if the batch that the entry names is really there."""
        relative, position = entry
        if not 0 <= position < self.size:
            return None
        data = self.file.pread(HEADER_SIZE, position)
        try:
            hop = self.hop_at(data, 0, position, self.base_offset)
        except CorruptBatch:
            return None
        return position if hop.last_offset - self.base_offset == relative else None

    # --- the indexes and what is known of the end ----------------------------------------------------------

    def note(self, hop: Hop, indexed_position: int, index_interval_bytes: int) -> int:
        """Add a batch to the indexes, as when it was appended; returns the position of the last entry."""
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
        """Drop the index entries of batches that were cut off: the file ends before this offset now."""
        self.txn_index.truncate(end_offset)
        self.index.cut(self.size)
        self.time_index.cut(end_offset - self.base_offset)

    def forget_index(self) -> None:
        self.index.clear()
        self.time_index.clear()
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset

    def rebuild_index(self, index_interval_bytes: int = 4096) -> Tail:
        """Rebuild both indexes from the batches. Reads every header: may block."""
        self.forget_index()
        return self._note_all(0, self.base_offset, 0, index_interval_bytes)

    def _repair_index(self) -> None:
        log.warning("index is wrong and is rebuilt", extra={"path": self.file.path})
        self.rebuild_index()

    def load_tail(self, index_interval_bytes: int) -> Tail:
        """The state for appending, read from the last index entry on; from all batches if that is wrong."""
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
        """True if the batch that a time entry names is there and has that timestamp."""
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
        """True if nothing contradicts a time entry; damage before its batch does not."""
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
        # In this order: the times of batches after the last entry of the offset index are read again.
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

    # --- the files -----------------------------------------------------------------------------------------

    @property
    def index_bytes(self) -> int:
        return self.index.file.size()

    def files(self) -> list[File]:
        """The files, the log first."""
        return [self.file, self.index.file, self.time_index.file, self.txn_index.file]

    def mark_deleted(self) -> None:
        """Rename the files as Kafka does; readers with a range of them can finish."""
        for file in self.files():
            if not file.path.endswith(DELETED):
                file.rename(file.path + DELETED)

    def close(self) -> None:
        for file in self.files():
            file.close()
