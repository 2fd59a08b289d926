"""The files of a log: everything that may wait for the device. For threads, never for the event loop.

`Log` is what the loop uses. This is its other half, reached by `Log.files`, and works on the same state.
Which thread may call what:

- Any thread, while the owner uses the log: `datasync`, `sync_names`, `warm`, `probe`.
- A thread to which the owner has lent the log, or that has opened it and not handed it over yet: all the
  rest, and every method of `Log`. The owner makes no call until it gets the log back.
- The loop itself, before the broker serves and when it serves no more.

**Syncing.** `datasync` takes note of the end first, syncs every file that can hold something below that end,
and only then moves the recovery point. If the log was truncated in the meantime (`Unsynced.generation`), that
end is invalid, and it starts again. A failed fdatasync is final: the kernel may have dropped the bytes, and a
second call would report success.

**Truncation**, at the end of a log, where a follower differs from its leader, or of all of it. How long it
takes does not depend on how large the log is: the last segment's file and indexes are cut, and what is needed
to go on appending is read from the last index entry that is left. Segments are removed from the last to the
first, so a crash leaves a log without holes, which is then cut again. A cut that is done is also safe from a
loss of power. When the disk fails in the middle, the log is offline for good: memory and files may disagree,
and opening it again finds out what is there. Its recovery point no longer claims what was to be cut: it will
be checkpointed, and what is gone must not look like a loss.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import PurePath

from forebay.errors import StorageError
from forebay.storage.disk import FileClosed
from forebay.storage.log.segment import Segment
from forebay.storage.log.segments import LogSlice
from forebay.storage.log.swap import SwappingLog
from forebay.storage.log.txn_index import AbortedTxn
from forebay.wire.batch import BatchHeader

logger = logging.getLogger(__name__)

_WARM_BYTES = 1 << 20
_PROBE = "probe.tmp"
_PROBE_BYTES = 64 * 1024


class LogFiles:
    __slots__ = ("_log", "before_sync")

    def __init__(self, log: SwappingLog) -> None:
        self._log = log
        self.before_sync: Callable[[], None] | None = None
        """Called before the files are synced, in the same thread: what must be on the disk before them."""

    # --- syncing -------------------------------------------------------------------------------------------

    def datasync(self) -> int:
        """Make all that was written survive a loss of power; returns the recovery point. Any thread."""
        log, unsynced = self._log, self._log._unsynced
        if log.offline_for_good:
            raise StorageError(log.offline or "the log is offline")
        with unsynced.lock:
            generation = unsynced.generation
            end = log._written_end
            active = log._active
            sealed = tuple(unsynced.segments)
            new_names, unsynced.new_names = unsynced.new_names, False
        if end <= log.recovery_point and not new_names:
            return log.recovery_point
        unprepared = self._prepare_sync(new_names)
        try:
            self._sync_files(active, sealed, new_names)
        except OSError as error:
            if self._changed_since(generation, new_names):
                return self.datasync()  # what could not be synced may have been cut off
            log.take_offline(f"cannot sync {active.file.path}: {error}")
            logger.error("log offline for good", extra={"directory": log.directory, "error": str(error)})
            raise StorageError(f"cannot sync {active.file.path}: {error}") from error
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
        """Whether the log was cut while it was being synced; then the names have to be synced again too."""
        unsynced = self._log._unsynced
        with unsynced.lock:
            unsynced.new_names |= new_names
            return unsynced.generation != generation

    def _prepare_sync(self, new_names: bool) -> StorageError | None:
        """What went wrong with the files beside the log, on a full disk for instance.

        The log's own files are synced all the same, so that a loss of power takes nothing; but the next start
        looks through them, and another sync is tried.
        """
        try:
            if self.before_sync is not None:
                self.before_sync()
        except OSError as error:
            with self._log._unsynced.lock:
                self._log._unsynced.new_names |= new_names
            return StorageError(f"cannot prepare to sync {self._log.directory}: {error}")
        return None

    def _sync_files(self, active: Segment, sealed: tuple[Segment, ...], new_names: bool) -> None:
        for segment in sealed:
            with suppress(FileClosed):  # deleted meanwhile: there is nothing left to keep
                segment.datasync(indexes=True)
        with suppress(FileClosed):
            active.datasync(indexes=False)
        if new_names:
            self.sync_names()
            self._log._disk.fsync_dir(str(PurePath(self._log.directory).parent))

    def sync_names(self) -> None:
        """Make new and changed names of files survive a loss of power. Any thread."""
        self._log._disk.fsync_dir(self._log.directory)

    # --- truncation ----------------------------------------------------------------------------------------

    def end_below(self, offset: int) -> int:
        """Where the log would end if it were truncated to `offset`: a batch is kept or goes as a whole.

        A checkpoint that claims more must be lowered before (`DataDir.lowered`).
        """
        log = self._log
        if offset >= log.end_offset:
            return log.end_offset
        if offset <= log.begin_offset:
            return offset
        try:
            return log._segments.from_offset(offset)[0].end_below(offset)
        except OSError as error:
            raise StorageError(f"cannot read {log.directory}: {error}") from error

    def truncate_to(self, offset: int) -> None:
        """Let the log end at `offset`, or where the last batch below it ends.

        The checkpoints are lowered meanwhile (`DataDir.lowered`): a crash must not look like a loss.
        """
        log = self._log
        log._write_early()
        if offset >= log.end_offset:
            return
        segments, unsynced = log._segments, log._unsynced
        if offset < log.begin_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self._settle_swap()
        with unsynced.lock, self._offline_if_it_fails(segments.from_offset(offset)[0].base_offset):
            unsynced.generation += 1
            while segments[-1].base_offset > offset:
                log._drop_last()
            self._truncate_last(offset)
            self._forget_beyond_end()
            self._make_safe()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`."""
        log = self._log
        self._settle_swap()
        log._pending.clear()
        with log._unsynced.lock, self._offline_if_it_fails(0):
            log._begin_anew(offset, keep=0)
            log.start_offset = offset
            self._forget_beyond_end()
            self._make_safe()

    def _make_safe(self) -> None:
        """Make the truncation survive a loss of power before anything is written in its place.

        Otherwise old bytes could reappear after the new ones and look valid.
        """
        self._log._active.datasync(indexes=False)
        self.sync_names()

    @contextmanager
    def _offline_if_it_fails(self, untouched: int) -> Iterator[None]:
        """Around a cut that touches nothing below an offset. Under the lock."""
        log = self._log
        try:
            yield
        except (OSError, StorageError) as error:
            log.recovery_point = min(log.recovery_point, untouched)
            log.take_offline(f"cannot truncate {log.directory}: {error}; start the broker again")
            raise StorageError(log.offline or str(error)) from error

    def _truncate_last(self, offset: int) -> None:
        """Cut the last segment. Its File is closed, so a range of it still being sent ends in an error."""
        log = self._log
        old = log._segments[-1]
        hop = old.find(offset)
        old.file.truncate(old.size if hop is None else hop.position)
        old.close()
        segment = Segment(log._disk, log.directory, old.base_offset)
        segment.cut_indexes(offset if hop is None else min(offset, hop.base_offset))
        segment.trusted_from = min(old.trusted_from, segment.size)
        tail = segment.load_tail(log.config.index_interval_bytes)
        log._unsynced.forget([old])
        log._segments.pop()
        log._segments.push(segment)
        log._activate(tail)

    def _forget_beyond_end(self) -> None:
        log = self._log
        log.start_offset = min(log.start_offset, log.end_offset)
        log.recovery_point = min(log.recovery_point, log.end_offset)
        log._snapshots.remove_beyond(log.end_offset)

    # --- closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write, sync and close everything, so that the next open need not look."""
        log = self._log
        try:
            self._settle_swap()
            log._write_early()
            if log.offline is not None and not log.offline_for_good:
                log._cut_torn()
            log._active.seal()
            if not log.offline_for_good:
                self.datasync()
        except OSError as error:
            raise StorageError(f"cannot close {log.directory}: {error}") from error
        finally:
            log.forget_swap()
            log._segments.close()

    def _settle_swap(self) -> None:
        """Before the log is cut or closed: leave no swap that opening would complete."""
        log = self._log
        if log.swap_pending:
            if log._adopted:
                self.sync_names()
                log.end_swap()
            else:
                log._abandon()
            self.sync_names()

    # --- reading, and what is beside the log ---------------------------------------------------------------

    def scan(self, from_offset: int) -> Iterator[tuple[memoryview, BatchHeader]]:
        """Every batch from the one that holds the offset. Raises StorageError."""
        for stretch in self._log.stretches(from_offset):
            yield from stretch.batches()

    def warm(self, found: LogSlice) -> None:
        """Read a slice into the page cache and check its CRCs if need be."""
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
            raise StorageError(f"cannot read {self._log.directory}: {error}") from error

    def probe(self) -> None:
        """Find out whether the disk takes data again, else raise OSError. See `Log.come_back`."""
        disk, path = self._log._disk, f"{self._log.directory}/{_PROBE}"
        file = disk.open(path, create=True)
        try:
            file.appendv([bytes(_PROBE_BYTES)])
        finally:
            file.close()
            disk.remove(path)

    def forget_unsynced(self, *, snapshots: bool) -> None:
        """After opening: what lies beside the log and was not synced is not believed, but made anew from it.

        `snapshots`: also those beyond the end. The log will grow past them again, with other batches.
        """
        log = self._log
        offset = min(log.recovery_point, log.end_offset)
        for segment in log._segments.from_offset(offset):
            if segment.txn_index.file.size():
                segment.txn_index.keep_below(offset)
        if snapshots:
            log._snapshots.remove_beyond(log.end_offset)

    def restore_aborted(self, aborted: AbortedTxn) -> None:
        """Enter a transaction found while the log is read again after a crash, unless it is there."""
        index = self._log._segments.from_offset(aborted.last_offset)[0].txn_index
        last = index.last()
        if last is None or last.last_offset < aborted.last_offset:
            index.append([aborted])
            self._log.has_aborted = True

    def write_snapshot(self, data: bytes) -> None:
        """Like `Log.write_snapshot`, but durable."""
        log = self._log
        log._snapshots.write(log.end_offset, data, sync=True, recovery_point=log.recovery_point)

    def snapshots(self) -> Iterator[tuple[int, bytes]]:
        """(offset, state) of the snapshots not beyond the end, newest first: take the first that is whole."""
        return self._log._snapshots.newest_first(self._log.end_offset)
