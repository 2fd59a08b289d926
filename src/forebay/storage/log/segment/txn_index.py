"""Aborted transactions of a segment: the `.txnindex` file that tells committed readers what to skip.

An entry stands for a transaction whose abort marker lies in the segment; its messages may lie in earlier
ones. The layout is Kafka's: version int16, then producer id, first offset, last offset (the marker's) and the
last stable offset after it, int64 each. Markers are entered in the order of the log, so all but the first
offsets grow, and a reader begins at a position found by bisection and stops at the first entry whose last
stable offset is beyond its range: every transaction that ended later also began beyond it.

Most segments have no aborted transaction, and then the file is empty. It exists all the same: a missing file
was lost, and without its entries readers would see aborted messages (recovery/txn_index_recovery.py).

Entries are written before their markers. Those below the recovery point are synced with the log; the others
are rebuilt from the log after a crash (`keep_below`, then `append`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from forebay.errors import StorageError
from forebay.storage.disk import File

_ENTRY = Struct(">hqqqq")
_VERSION = 0
_ENTRIES_PER_READ = 256


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the abort marker."""
    last_stable_offset: int
    """The last stable offset after this transaction had ended."""


def packed(entries: Iterable[AbortedTxn]) -> bytes:
    """The entries as they are in the file."""
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


class TxnIndex:
    __slots__ = ("_base_offset", "_unsynced", "file")

    def __init__(self, file: File, base_offset: int) -> None:
        self.file = file
        self._base_offset = base_offset
        self._unsynced = file.size() > 0
        """True for existing content too: the process that wrote it may not have synced it."""

    def __len__(self) -> int:
        return self.file.size() // _ENTRY.size

    def append(self, entries: Sequence[AbortedTxn]) -> None:
        """Add transactions whose markers come after all existing ones; all of them or none."""
        self._unsynced = True
        self.file.appendv([packed(entries)])

    def create(self) -> None:
        """Create an empty file."""
        self.file.truncate(0)

    def distrust(self) -> None:
        """Sync it again, though it is empty: a process may have cut it and died before the sync."""
        self._unsynced = True

    def last(self) -> AbortedTxn | None:
        count = len(self)
        return self._entry(count - 1) if count else None

    def entries(self, first: int = 0) -> Iterator[AbortedTxn]:
        """The entries in the order of their markers; raises StorageError for any other content."""
        number, expected = first, self._base_offset
        while number < len(self):
            for row in self._rows(number, _ENTRIES_PER_READ):
                entry = self._checked(number, row, expected)
                yield entry
                number, expected = number + 1, entry.last_offset + 1

    def overlapping(self, offset: int, upper_offset: int) -> tuple[list[AbortedTxn], bool]:
        """Transactions with messages or a marker in [offset, upper_offset); True if later segments have
        none."""
        found: list[AbortedTxn] = []
        for entry in self.entries(self._first_ending_from(offset)):
            if entry.first_offset < upper_offset:
                found.append(entry)
            if entry.last_stable_offset >= upper_offset:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Drop the transactions whose markers are at this offset or after it."""
        last = self.last()
        if last is not None and last.last_offset >= offset:
            self._cut(self._first_ending_from(offset))

    def keep_below(self, offset: int) -> None:
        """Drop entries that a crash may have left for markers from this offset on."""
        kept = 0
        try:
            for entry in self.entries():
                if entry.last_offset >= offset:
                    break
                kept += 1
        except StorageError:
            pass  # from here on the file may be incomplete on the disk
        if self.file.size() != kept * _ENTRY.size:
            self._cut(kept)

    def _cut(self, kept: int) -> None:
        """Keep the first entries. This has to be synced, too: the log will grow past the dropped ones."""
        self._unsynced = True
        self.file.truncate(kept * _ENTRY.size)

    def datasync(self) -> None:
        """Make all writes and cuts so far survive a power failure. Blocks; any thread."""
        if self._unsynced:
            self._unsynced = False
            try:
                self.file.datasync()
            except OSError:
                self._unsynced = True
                raise

    def _first_ending_from(self, offset: int) -> int:
        """The number of the first entry whose marker is at this offset or after it."""
        return bisect_left(range(len(self)), offset, key=lambda number: self._entry(number).last_offset)

    def _entry(self, number: int) -> AbortedTxn:
        return self._checked(number, self._rows(number, 1)[0], self._base_offset)

    def _rows(self, number: int, count: int) -> list[tuple[int, ...]]:
        size = _ENTRY.size
        wanted = min(count, len(self) - number) * size
        data = self.file.pread(wanted, number * size)
        if len(data) != wanted:
            raise StorageError(f"{self.file.path} is shorter than it was")
        return list(_ENTRY.iter_unpack(data))

    def _checked(self, number: int, row: tuple[int, ...], last_offset_min: int) -> AbortedTxn:
        entry = AbortedTxn._make(row[1:])
        # A transaction begins before its marker. One at offset 0 is a row of zeros that a loss of power left.
        if row[0] != _VERSION or entry.last_offset < max(last_offset_min, 1):
            raise StorageError(f"{self.file.path} is damaged at entry {number}")
        return entry
