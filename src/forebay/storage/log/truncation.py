"""Cutting a log: at its end, where a follower differs from its leader, or all of it.

How long it takes does not depend on how large the log is: the last segment's file and indexes are cut, and
what is needed to go on appending is read from the last index entry that is left. Segments are removed from
the last to the first, so a crash leaves a log without holes, which is then cut again. A cut that is done is
also safe from a loss of power.

Blocks, because files are removed and synced. The owner of a log may lend it to a thread for this (see
log.py); `datasync` may run meanwhile in yet another thread. It takes note of the end and later finds that
the log has another generation, and begins again.

When the disk fails in the middle, the log is offline for good: memory and files may disagree, and opening
it again finds out what is there. Its recovery point no longer claims what was to be cut: it will be
checkpointed, and what is gone must not look like a loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from forebay.errors import StorageError
from forebay.storage.log.segment import Segment
from forebay.storage.log.swap import SwappingLog


class TruncatingLog(SwappingLog):
    __slots__ = ()

    def end_below(self, offset: int) -> int:
        """Where the log would end if it were truncated to `offset`: a batch is kept or goes as a whole.

        A checkpoint that claims more must be lowered before (`DataDir.lowered`). Blocks.
        """
        if offset >= self.end_offset:
            return self.end_offset
        if offset <= self._segments[0].base_offset:
            return offset
        try:
            return self._segments.from_offset(offset)[0].end_below(offset)
        except OSError as error:
            raise StorageError(f"cannot read {self.directory}: {error}") from error

    def truncate_to(self, offset: int) -> None:
        """Let the log end at `offset`, or where the last batch below it ends. Blocks.

        The checkpoints are lowered meanwhile (`DataDir.lowered`): a crash must not look like a loss.
        """
        self._write_early()
        if offset >= self.end_offset:
            return
        if offset < self._segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        self.settle()
        with self._sync_lock, self._offline_if_it_fails(self._segments.from_offset(offset)[0].base_offset):
            self._generation += 1
            while self._segments[-1].base_offset > offset:
                self._drop_last()
            self._truncate_last(offset)
            self._forget_beyond_end()
            self._make_safe()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and begin anew at `offset`. Blocks."""
        self.settle()
        self._pending.clear()
        with self._sync_lock, self._offline_if_it_fails(0):
            self._begin_anew(offset, keep=0)
            self.start_offset = offset
            self._forget_beyond_end()
            self._make_safe()

    def _make_safe(self) -> None:
        """Make the truncation survive a loss of power before anything is written in its place.

        Otherwise old bytes could reappear after the new ones and look valid.
        """
        self._active.datasync(indexes=False)
        self._disk.fsync_dir(self.directory)

    @contextmanager
    def _offline_if_it_fails(self, untouched: int) -> Iterator[None]:
        """Around a cut that touches nothing below an offset. Under the lock."""
        try:
            yield
        except (OSError, StorageError) as error:
            self.recovery_point = min(self.recovery_point, untouched)
            self.take_offline(f"cannot truncate {self.directory}: {error}; start the broker again")
            raise StorageError(self.offline or str(error)) from error

    def _truncate_last(self, offset: int) -> None:
        """Cut the last segment. Its File is closed, so a range of it still being sent ends in an error."""
        old = self._segments[-1]
        hop = old.find(offset)
        old.file.truncate(old.size if hop is None else hop.position)
        old.close()
        segment = Segment(self._disk, self.directory, old.base_offset)
        segment.cut_indexes(offset if hop is None else min(offset, hop.base_offset))
        segment.trusted_from = min(old.trusted_from, segment.size)
        tail = segment.load_tail(self._config.index_interval_bytes)
        self._unsynced = [unsynced for unsynced in self._unsynced if unsynced is not old]
        self._segments.pop()
        self._segments.push(segment)
        self._activate(tail)

    def _forget_beyond_end(self) -> None:
        self.start_offset = min(self.start_offset, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        self._snapshots.remove_beyond(self.end_offset)
