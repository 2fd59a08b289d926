"""Detects that a log has lost index files of aborted transactions, without reading the log.

The offset and time indexes serve speed, and a segment that is not small shows by itself that it lacks them.
The index of aborted transactions is needed for correctness, and most are empty. So every segment has the
file, even if empty, and the directory says so: in `partition.metadata`, or by a file `.txn_indexed` if that
does not. So a missing file was lost: removed, or left out of a backup. It is rebuilt from the log
(broker/partition/producer_replay.py), which means reading all batches from the first one on.

Directories of Kafka and of early versions do not say it. There a missing index means that nothing was
aborted, unless the other indexes of the log are missing, too. They get the files when they are opened, and
`.txn_indexed`, and from then on a loss is detected.

For segments from the recovery point on, these files are never used: the log is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from forebay.storage.disk import Disk
from forebay.storage.log.segment.segment import Segment, segment_name
from forebay.storage.log.segment.txn_index import AbortedTxn, TxnIndex, packed

log = logging.getLogger(__name__)

TXN_INDEXED = ".txn_indexed"


class TxnIndexFiles:
    """The segments of a directory that have an index of aborted transactions, as found at opening."""

    def __init__(self, disk: Disk, directory: str, names: Iterable[str], *, is_known: bool = False) -> None:
        """`names`: of all files in the directory. `is_known`: another file says that all segments have it."""
        self._disk = disk
        self._directory = directory
        self._names = set(names)
        self._is_marked = is_known or TXN_INDEXED in self._names
        self.must_exist = self._is_marked

    def add(self, segment: Segment) -> None:
        """A segment has been created, with its index."""
        self._names.add(f"{segment_name(segment.base_offset)}.txnindex")

    def complete(self, segments: Sequence[Segment], believed_to: int) -> tuple[list[Segment], bool]:
        """The segments whose index was lost, and True if files were created for others.

        `believed_to`: the offset up to which index files are trusted. Blocks.
        """
        absent = [segment for segment in segments if not self._is_there(segment)]
        lost = [s for s in absent if self.must_exist and s.size and s.base_offset < believed_to]
        for segment in absent:
            if segment not in lost:
                segment.txn_index.create()
        if not self._is_marked:
            mark_txn_indexed(self._disk, self._directory)
        if lost:
            log.error(
                "indexes of aborted transactions are missing and are made anew",
                extra={"directory": self._directory, "segments": len(lost)},
            )
        return lost, len(absent) > len(lost)

    def _is_there(self, segment: Segment) -> bool:
        return (
            bool(segment.txn_index.file.size())
            or f"{segment_name(segment.base_offset)}.txnindex" in self._names
        )


def mark_txn_indexed(disk: Disk, directory: str) -> None:
    """Every segment of this log has its index. Blocks."""
    # Not synced: without it the log is taken for one of an earlier version, as before.
    disk.open(f"{directory}/{TXN_INDEXED}", create=True).close()


def replace_txn_index(disk: Disk, segment: Segment, entries: Sequence[AbortedTxn]) -> None:
    """Give a segment the index that it has lost: all of it or, after a crash, none. Blocks."""
    path = segment.txn_index.file.path
    segment.txn_index.file.close()
    disk.write_atomic(path, packed(entries))
    segment.txn_index = TxnIndex(disk.open(path), segment.base_offset)
