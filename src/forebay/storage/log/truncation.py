"""Truncation: a log is cut at its end, where a follower differs from its leader, or emptied.

The time does not depend on the size of the log: the last segment's file and indexes are cut, and the state
for appending is read from the last remaining index entry. Segments are removed from the last to the first, so
a crash leaves a log without holes, which is then cut again. A completed cut also survives a power failure.
When the disk fails in the middle, the log is offline until it is opened again: memory and files may disagree.
Its recovery point no longer covers the part to be cut: it will be checkpointed, and the cut must not look
like a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forebay.errors import StorageError
from forebay.storage.log.compaction.swap import SwappingLog
from forebay.storage.log.segment.segment import Segment


class LogTruncation:
    """The part of `LogFiles` that truncates. For a thread to which the owner has lent the log."""

    __slots__ = ("_log",)

    def __init__(self, log: SwappingLog) -> None:
        self._log = log

    def end_below(self, offset: int) -> int:
        """The end of the log if it were truncated to `offset`: a batch is kept or cut as a whole.

        A checkpoint that claims more must be lowered before (`Checkpoints.lowered`).
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

        The checkpoints are lowered meanwhile (`Checkpoints.lowered`): a crash must not look like a loss.
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
        """Make the truncation survive a power failure before anything is written in its place.

        Otherwise old bytes could reappear after the new ones and look valid.
        """
        self._log._active.datasync(indexes=False)
        self.sync_names()

    @contextmanager
    def _offline_if_it_fails(self, untouched: int) -> Iterator[None]:
        """Take the log offline if the cut fails; it changes nothing below the offset. Under the lock."""
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
        log._unsynced.forget_snapshots_beyond(log.end_offset)

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

    def sync_names(self) -> None:
        """Make new and changed names of files survive a power failure. Any thread."""
        self._log._disk.fsync_dir(self._log.directory)
