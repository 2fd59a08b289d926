"""The files of a log: all operations that may wait for the device. For threads, never for the event loop.

The loop uses `Log`. This is its other half, reached by `Log.files`, and works on the same state. Which thread
may call what:

- Any thread, while the owner uses the log: `datasync`, `sync_names`, `warm`, `read`, `probe`,
  `snapshot_at`.
- A thread to which the owner has lent the log, or that has opened it and not handed it over yet: all others,
  and every method of `Log`. The owner makes no call until it gets the log back.
- The loop itself, before the broker serves and when it serves no more.

**Syncing.** `datasync` notes the end first, syncs every file that can hold something below that end, and only
then moves the recovery point. If the log was truncated in the meantime (`Unsynced.generation`), that end is
invalid, and it starts again. A failed fdatasync is final: the kernel may have dropped the bytes, and a second
call would report success.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Protocol

from forebay.errors import StorageError
from forebay.storage.disk import FileClosed
from forebay.storage.log.compaction.swap import SwappingLog
from forebay.storage.log.recovery.txn_index_recovery import replace_txn_index
from forebay.storage.log.segment.batch_parts import DamagedPart, WholeBatch
from forebay.storage.log.segment.segment import Segment, segment_name
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.storage.log.truncation import LogTruncation
from forebay.wire.batch import BatchHeader
from forebay.wire.parts import FileRange

logger = logging.getLogger(__name__)

_WARM_BYTES = 1 << 20
_SHORT_BYTES = 1 << 16
"""A log of this size is read as a whole at little cost."""
_PROBE = "probe.tmp"
_PROBE_BYTES = 64 * 1024


class BeforeSync(Protocol):
    def __call__(self, *, names_follow: bool = False, told_from: int | None = None) -> None:
        """`names_follow`: the names in the log's directory are synced after it. `told_from`: see
        `LeaderEpochs.datasync`."""


class LogFiles(LogTruncation):
    __slots__ = ("before_sync", "sync_parent")

    def __init__(self, log: SwappingLog) -> None:
        super().__init__(log)
        self.before_sync: BeforeSync | None = None
        """Called before the files are synced, in the same thread: to sync what must be on the disk before the
        recovery point moves."""
        self.sync_parent: Callable[[], None] | None = None
        """Makes the name of the log's own directory durable. None: the directory above it is synced."""

    # --- syncing -------------------------------------------------------------------------------------------

    def datasync(self) -> int:
        """Make everything written survive a power failure; returns the recovery point. Any thread."""
        log, unsynced = self._log, self._log._unsynced
        if log.offline_for_good:
            raise StorageError(log.offline or "the log is offline")
        with unsynced.lock:
            generation = unsynced.generation
            end = log._written_end
            active = log._active
            sealed = tuple(unsynced.segments)
            new_names, unsynced.new_names = unsynced.new_names, False
            told_from = self._told_from()
            snapshot = unsynced.snapshot_up_to(end)
        if end <= log.recovery_point and not new_names and snapshot is None:
            return log.recovery_point
        unprepared = self._prepare_sync(new_names, told_from)
        try:
            snapshot_synced = self._sync_files(active, sealed, new_names, snapshot)
        except OSError as error:
            if self._changed_since(generation, new_names):
                return self.datasync()  # bytes that could not be synced may have been cut off
            log.take_offline(f"cannot sync {active.file.path}: {error}")
            logger.error("log offline for good", extra={"directory": log.directory, "error": str(error)})
            raise StorageError(f"cannot sync {active.file.path}: {error}") from error
        with unsynced.lock:
            if unsynced.generation == generation:
                # Also if something else could not be written: deletion waits for this, and the disk for that.
                unsynced.snapshot_tried(snapshot, synced=snapshot_synced)
        if unprepared is not None:
            raise unprepared
        with unsynced.lock:
            if unsynced.generation == generation:
                unsynced.forget(sealed)
                log.recovery_point = max(log.recovery_point, end)
                return log.recovery_point
            unsynced.new_names |= new_names
        return self.datasync()

    def _changed_since(self, generation: int, new_names: bool) -> bool:
        """True if the log was truncated during the sync; then the names have to be synced again too."""
        unsynced = self._log._unsynced
        with unsynced.lock:
            unsynced.new_names |= new_names
            return unsynced.generation != generation

    def _prepare_sync(self, new_names: bool, told_from: int | None) -> StorageError | None:
        """Sync the files beside the log; returns the error, on a full disk for instance.

        The log's own files are synced all the same, so that a power failure loses nothing; but the next start
        scans them, and another sync is tried.
        """
        try:
            if self.before_sync is not None:
                self.before_sync(names_follow=new_names, told_from=told_from)
        except OSError as error:
            with self._log._unsynced.lock:
                self._log._unsynced.new_names |= new_names
            return StorageError(f"cannot prepare to sync {self._log.directory}: {error}")
        return None

    def _told_from(self) -> int | None:
        """Where the log begins, if its only segment has batches, and few. While nothing is cut off."""
        first, *others = self._log._segments
        is_short = not others and 0 < first.size <= _SHORT_BYTES
        return first.base_offset if is_short else None

    def _sync_files(
        self, active: Segment, sealed: tuple[Segment, ...], new_names: bool, snapshot: int | None
    ) -> bool:
        """True if the snapshot is synced, too."""
        for segment in sealed:
            with suppress(FileClosed):  # deleted meanwhile: there is nothing left to keep
                segment.datasync(indexes=True)
        with suppress(FileClosed):
            active.datasync(indexes=False)
        snapshot_synced = snapshot is not None and self._log._snapshots.sync(snapshot)
        if new_names or snapshot is not None:
            self.sync_names()
        if new_names:
            if self.sync_parent is not None:
                self.sync_parent()
            else:
                self._log._disk.fsync_dir(str(PurePath(self._log.directory).parent))
        return snapshot_synced

    # --- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write, sync and close everything, so that the next open need not check."""
        try:
            self.settle()
        finally:
            self.let_go()

    def settle(self) -> None:
        """Write and sync everything, so that the next open need not check. A log that nobody wrote to since
        it was last settled costs no system call."""
        log = self._log
        try:
            self._settle_swap()
            log._write_early()
            if log.offline is not None and not log.offline_for_good:
                log._cut_torn()
            log._active.seal()
            if log.end_offset and not log.offline_for_good:  # there is nothing to lose before the first batch
                if self.before_sync is not None:
                    # What it writes may have changed since the last batch was synced.
                    self.before_sync(told_from=self._told_from())
                self.datasync()
        except OSError as error:
            raise StorageError(f"cannot close {log.directory}: {error}") from error

    def let_go(self) -> None:
        """Close the files."""
        self._log.forget_swap()
        self._log._segments.close()

    # --- reading, and what is beside the log ---------------------------------------------------------------

    def scan(self, from_offset: int) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Every batch from the one that holds the offset. Raises CorruptBatch, and other StorageErrors."""
        for stretch in self._log.stretches(from_offset):
            yield from stretch.batches()

    def parts(self, from_offset: int) -> Iterator[WholeBatch | DamagedPart]:
        """Like `scan`, but yields damaged parts too, and the batches after them."""
        for stretch in self._log.files_from(from_offset):
            for part in stretch.read():
                if isinstance(part, DamagedPart) or part.header.last_offset >= from_offset:
                    yield part

    def warm(self, found: LogSlice) -> None:
        """Read a slice into the page cache and check its CRCs if need be."""
        part, segment = found.range, found.segment
        if part is None or segment is None:
            return
        try:
            if segment.trusts(part.position, part.length):
                _read_all(part)
            else:
                segment.verify(part.position, part.length)
        except OSError as error:
            raise StorageError(f"cannot read {self._log.directory}: {error}") from error

    def read(self, found: LogSlice) -> bytes:
        """The bytes of a slice, its CRCs checked if need be. Raises OSError, including FileClosed."""
        part, segment = found.range, found.segment
        if part is None or segment is None:
            return b""
        if not segment.trusts(part.position, part.length):
            segment.verify(part.position, part.length)
        return part.file.pread(part.length, part.position)

    def probe(self) -> None:
        """Check that the disk accepts data again, else raise OSError. See `Log.come_back`."""
        disk, path = self._log._disk, f"{self._log.directory}/{_PROBE}"
        file = disk.open(path, create=True)
        try:
            file.appendv([bytes(_PROBE_BYTES)])
        finally:
            file.close()
            disk.remove(path)

    def forget_unsynced(self, *, snapshots: bool) -> None:
        """After opening: discard unsynced files beside the log, and rebuild them from it.

        `snapshots`: also those beyond the end. The log will grow past them again, with other batches.
        """
        log = self._log
        offset = min(log.recovery_point, log.end_offset)
        for segment in log._segments.from_offset(offset):
            if segment.txn_index.file.size():
                segment.txn_index.keep_below(offset)
        if snapshots:
            log._snapshots.remove_beyond(log.end_offset)

    def snapshot_read(self, offset: int, *, synced: bool) -> None:
        """After loading: this is the newest snapshot that is whole. The next sync includes it, unless it is
        known to be synced: the process before may have ended too early."""
        unsynced = self._log._unsynced
        with unsynced.lock:
            if synced:
                unsynced.synced_snapshot = offset
            unsynced.note_snapshot(offset)

    def snapshot_damaged(self, offset: int) -> None:
        self._log._snapshots.note_damaged(offset)

    def write_snapshot_at(self, offset: int, data: bytes) -> None:
        """Durably, before the log is cut to end at this offset, or begins anew there. It removes no other.

        Beyond the end opening removes it."""
        self._log._snapshots.write(offset, data, sync=True, needed=-1)

    def forget_snapshots_ahead(self) -> None:
        """The log did not begin anew: it may grow past them, with other batches."""
        self._log._snapshots.remove_beyond(self._log.end_offset)

    def restore_aborted(self, aborted: AbortedTxn) -> None:
        """Add a transaction found while the log is read again after a crash, unless it is there."""
        index = self._log._segments.from_offset(aborted.last_offset)[0].txn_index
        last = index.last()
        if last is None or last.last_offset < aborted.last_offset:
            index.append([aborted])
            self._log.has_aborted = True

    def replace_lost_aborted(self, aborted: Iterable[AbortedTxn]) -> None:
        """Write the indexes that were lost, given the aborted transactions in the order of their markers."""
        log = self._log
        lost = deque(log.lost_txn_indexes)
        entries: list[AbortedTxn] = []
        for transaction in aborted:
            while lost and transaction.last_offset >= lost[0].next_base:
                self._replace_index(lost.popleft(), entries)
                entries = []
            if lost and transaction.last_offset >= lost[0].base_offset:
                entries.append(transaction)
        for segment in lost:
            self._replace_index(segment, entries)
            entries = []
        log.lost_txn_indexes = []

    def _replace_index(self, segment: Segment, entries: Sequence[AbortedTxn]) -> None:
        replace_txn_index(self._log._disk, segment, entries)
        self._log.has_aborted |= bool(entries)

    def write_snapshot(self, data: bytes) -> None:
        """Like `Log.write_snapshot`, but durable."""
        log = self._log
        log.keep_snapshot(data, sync=True)
        log.note_snapshot()

    def snapshot_at(self, offset: int) -> bytes:
        """The snapshot of producers that was taken at exactly this offset; empty if there is none. Any
        thread."""
        disk, path = self._log._disk, f"{self._log.directory}/{segment_name(offset)}.snapshot"
        return disk.read_bytes(path) if disk.exists(path) else b""

    def snapshots(self, offset_max: int | None = None) -> Iterator[tuple[int, bytes]]:
        """(offset, state) of the snapshots beyond neither the end nor this offset, newest first: take the
        first that is whole."""
        end_offset = self._log.end_offset
        return self._log._snapshots.newest_first(
            end_offset if offset_max is None else min(offset_max, end_offset)
        )


def _read_all(part: FileRange) -> None:
    """Read a range, in chunks. A read ends before a page that the disk cannot read; the next one fails."""
    position, end = part.position, part.position + part.length
    while position < end:
        read = len(part.file.pread(min(_WARM_BYTES, end - position), position))
        if not read:
            break
        position += read
