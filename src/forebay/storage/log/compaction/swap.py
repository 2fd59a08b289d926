"""Replaces segments by their compacted versions, so that a crash at any point does no harm.

The files of the new segment pass through three names:

1. `.cleaned` while it is written; after a crash such files are deleted.
2. `.swap` once all is written and synced and the segments that it replaces are unchanged. The rename of
   the `.log` file comes last and decides: from here on opening the log completes the swap.
3. The final names, once the old segments have been renamed to `.deleted`. The `.log` file is renamed
   first, so while its `.swap` exists every index of a final name belongs to the old segments.

Every rename happens on the loop, which owns the log, and waits for no device; between the steps a thread
makes the directory durable (`LogFiles.sync_names`). The log can be truncated or closed in between, which
first ends the swap one way or the other. A step that the disk refuses changes nothing and can be repeated:
the swap is `swap_pending` until its last step is done, and no other begins before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forebay.clock import Clock, monotonic_ms
from forebay.errors import StorageError
from forebay.storage.disk import Disk
from forebay.storage.log.config import LogConfig
from forebay.storage.log.recovery.log_recovery import Opened
from forebay.storage.log.recovery.swap_recovery import CLEANED, SWAP, remove_files
from forebay.storage.log.segment.batch_file import Stretch
from forebay.storage.log.segment.segment import Segment
from forebay.storage.log.writer import LogWriter


class SwappingLog(LogWriter):
    __slots__ = ("_adopted", "_swap")

    def __init__(self, disk: Disk, directory: str, config: LogConfig, clock: Clock, opened: Opened) -> None:
        super().__init__(disk, directory, config, clock, opened)
        self._swap: tuple[list[Segment], Segment] | None = None
        """The old segments and the new one, from `begin_swap` on."""
        self._adopted = False
        """True if the log has the new segment already, and cannot go back."""

    def sealed_segments(self, end_offset: int) -> list[Segment]:
        """The segments below an offset, never the active one."""
        return [s for s in self._segments if s is not self._active and s.next_base <= end_offset]

    def first_timestamp_from(self, offset: int) -> int | None:
        """The start time of the segment that holds an offset, or of the next one. Reads a header."""
        return self._segments.from_offset(offset)[0].first_timestamp()

    def stretches(self, from_offset: int) -> Iterator[Stretch]:
        """The ranges of the batches, from the one that holds the offset on. Raises StorageError."""
        self._write_early()
        for segment in self._segments.from_offset(from_offset):
            try:
                first = segment.find(from_offset)
            except OSError as error:
                raise StorageError(f"cannot read {self.directory}: {error}") from error
            if first is not None:
                yield Stretch(segment, first.position, segment.size)

    def files_from(self, from_offset: int) -> Iterator[Stretch]:
        """Like `stretches`, but by the offset index alone: a stretch may begin with batches below the offset.

        Damage does not hide what lies before it, or in another file: the reader of a stretch finds it.
        """
        self._write_early()
        for segment in self._segments.from_offset(from_offset):
            try:
                position = segment.position_before(from_offset)
            except OSError as error:
                raise StorageError(f"cannot read {self.directory}: {error}") from error
            if position < segment.size:
                yield Stretch(segment, position, segment.size)

    @property
    def swap_pending(self) -> bool:
        """True if a swap has begun and not ended."""
        return self._swap is not None

    def begin_swap(self, old: Sequence[Segment], new: Segment, *, generation: int) -> bool:
        """Commit to a new segment, written and synced, unless its originals are gone.

        Not if the log was truncated since that generation: messages may be gone that replaced others.
        """
        stale = generation != self.generation or not self._segments.holds(old) or self._active in old
        if self._final or self._swap is not None or stale:
            remove_files(self._disk, new)
            return False
        try:
            for file in reversed(new.files()):
                file.rename(file.path.removesuffix(CLEANED) + SWAP)
        except OSError:
            remove_files(self._disk, new)
            raise
        self._swap, self._adopted = (list(old), new), False
        return True

    def abandon_swap(self) -> bool:
        """Keep the old segments. False if the log has the new one already."""
        if self._swap is None or self._adopted:
            return False
        self._abandon()
        return True

    def adopt_swap(self) -> bool:
        """Read from the new segment from now on; the old ones stay for readers in flight."""
        if self._swap is None:
            return False
        old, new = self._swap
        if not self._adopted:
            if not self._segments.holds(old):
                self._abandon()
                return False
            with self._unsynced.lock:
                self._hints, self._old_hints = {}, {}
                self._unsynced.forget(old)
                self._segments.replace(old, new)
            self._adopted = True
        for segment in old:
            segment.mark_deleted()
        return True

    def end_swap(self) -> None:
        """Give the new segment's files their names."""
        if self._swap is None:
            return
        old, new = self._swap
        for segment in old:
            segment.mark_deleted()  # nothing to do, unless the disk refused the first time
        for file in new.files():
            if file.path.endswith(SWAP):  # otherwise it was deleted meanwhile
                file.rename(file.path.removesuffix(SWAP))
        # Not before: until here, files of the old segments may have the names of the new one's files.
        self._segments.retire(old, monotonic_ms(self._clock) + self.config.file_delete_delay_ms)
        self._tend_deleted()
        self._swap = None
        with self._unsynced.lock:
            self._unsynced.new_names = True

    def _tend_deleted(self) -> None:
        if self.tended is not None:
            self.tended.deleted.add(self)

    def forget_swap(self) -> None:
        """The log is being deleted with all its files, or closed."""
        if self._swap is not None:
            (old, new), self._swap = self._swap, None
            for segment in (*old, new):
                segment.close()

    def _abandon(self) -> None:
        assert self._swap is not None
        remove_files(self._disk, self._swap[1])
        self._swap = None
