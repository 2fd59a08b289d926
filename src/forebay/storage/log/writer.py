"""The writing half of a log: it queues, writes and rolls (`log_state.py`: what a failed write leaves).

`append` only queues: the batch is a view of the buffer that the request was received into, and one
`write_pending` at the end of the read event writes everything queued since the last. Any other operation that
needs the bytes (a read, a roll) writes them first.
"""

from __future__ import annotations

import logging

from forebay.errors import StorageError
from forebay.storage.log.log_state import CLOSED, LogState
from forebay.storage.log.segment.batch_walk import MAX_RELATIVE_OFFSET
from forebay.storage.log.segment.segment import Segment, Tail
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import BatchHeader

logger = logging.getLogger(__name__)

HINTS_MAX = 64


class LogWriter(LogState):
    __slots__ = ()

    def append(self, batch: memoryview, header: BatchHeader) -> None:
        """Queue a validated batch whose base offset is the log's end or later."""
        self.append_at(batch, header.base_offset, header.last_offset, header.max_timestamp)

    def append_at(self, batch: memoryview, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Like `append`, for a caller that has no BatchHeader. On the hot path."""
        position = self._position
        end = position + len(batch)
        if (
            end > self._roll_bytes
            or max_timestamp > self._roll_timestamp
            or last_offset > self._roll_offset
            or base_offset < self.end_offset
        ):
            self._make_ready(len(batch), base_offset, last_offset, max_timestamp)
            position = self._position
            end = position + len(batch)
        segment = self._active
        if max_timestamp > segment.max_timestamp:
            segment.max_timestamp = max_timestamp
            segment.max_timestamp_offset = last_offset
        if position > self._index_at:
            self._add_index_entry(last_offset, position)
        self._pending.append(batch)
        self._position = end
        self.end_offset = last_offset + 1

    def append_aborted(self, aborted: AbortedTxn) -> None:
        """Add a transaction to the index when its marker, which was just appended, is written."""
        self._aborted.append(aborted)

    def write_pending(self) -> None:
        """Write queued batches. StorageError means that none of them, of this event, is in the log."""
        if self._pending:
            self._write()
        elif self._lost is not None:
            lost, self._lost = self._lost, None
            raise lost

    def roll(self) -> None:
        """Seal the active segment and begin a new one; an empty one stays."""
        self._write_early()
        if self._active.size:
            if self.offline is not None:
                self._cut_torn()
            self._roll(self.end_offset)

    def roll_if_due(self, now_ms: int) -> None:
        """Close the active segment by its age, which otherwise happens with the next append."""
        if self._active.size and now_ms > self._roll_timestamp:
            self.roll()

    def _write(self) -> None:
        if self._final:
            raise self._fail(StorageError(self.offline or "the log is offline"))
        try:
            if self._aborted:
                self._write_aborted()
            self._file.appendv(self._pending)
        except OSError as error:
            raise self._fail(error) from error
        except Exception as error:
            # A bug. Queued batches must not stay queued: their buffer is used again.
            logger.exception("a log could not be written", extra={"directory": self.directory})
            raise self._fail(error) from error
        self._pending.clear()
        segment = self._active
        position = self._position
        segment.size = position
        end = self.end_offset
        self._written_end = end
        hints = self._hints
        hints[end] = (segment, position)
        if len(hints) > HINTS_MAX:
            self._old_hints = hints
            self._hints = {}
        if self._flush_due:
            self._flush_index()

    def _write_aborted(self) -> None:
        """Before the markers, so that no reader can see the end of a transaction and miss that it aborted."""
        index = self._active.txn_index
        if not len(index):
            with self._unsynced.lock:
                self._unsynced.new_names = True
        index.append(self._aborted)
        self._aborted.clear()
        self.has_aborted = True

    def _write_early(self) -> None:
        """Write for another reason than write_pending, which must still report a failure."""
        if self._pending:
            try:
                self._write()
            except StorageError as error:
                self._lost = error
                raise

    def _make_ready(self, size: int, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Something prevents an append: refuse it, roll, or begin the segment's clock."""
        if base_offset < self.end_offset:
            raise ValueError(f"batch at offset {base_offset}, the log ends at {self.end_offset}")
        if self.offline is not None:
            self._try_again()
        out_of_range = last_offset > self._roll_offset
        if self._position and (
            out_of_range or self._position + size > self._roll_bytes or max_timestamp > self._roll_timestamp
        ):
            self._write_early()
            self._roll(self._base_for(last_offset))
        elif out_of_range:
            with self._unsynced.lock:
                self._begin_anew(self._base_for(last_offset), keep=len(self._segments) - 1)
        if not self._position:
            self._set_limits(max_timestamp)

    def _base_for(self, last_offset: int) -> int:
        """The base offset of a segment whose first batch ends at `last_offset`.

        A copy of a compacted log has gaps. A gap belongs inside a segment, not between two: if a segment does
        not begin where the previous one ends, recovery takes that for a power failure. Only a gap larger than
        a segment can address lies before its first batch.
        """
        return max(self.end_offset, last_offset - MAX_RELATIVE_OFFSET)

    def _roll(self, base_offset: int) -> None:
        sealed = self._active
        try:
            sealed.seal()
            segment = Segment(self._disk, self.directory, base_offset, create=True)
        except OSError as error:
            raise self._fail(error) from error
        with self._unsynced.lock:
            self._unsynced.segments.append(sealed)
            self._unsynced.new_names = True
            self._segments.push(segment)
            self._activate(Tail(base_offset, 0, None))
        if self.on_roll is not None:
            self.on_roll(base_offset)

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        segment = self._active
        segment.add_entry(last_offset, position)
        self._index_at = position + self.config.index_interval_bytes
        self._flush_due = segment.index.full_chunk
        if len(segment.index) * 8 >= self.config.segment_index_bytes - 8:
            self._roll_bytes = CLOSED

    def _flush_index(self) -> None:
        try:
            self._active.flush_index()
        except OSError as error:
            # The entries stay in memory; the log itself is written, and if the disk is full it will say so.
            logger.warning("index not written", extra={"path": self._file.path, "error": str(error)})
        self._flush_due = False

    def _begin_anew(self, base_offset: int, *, keep: int) -> None:
        """Drop all but the first `keep` segments and continue in a new one. Under the lock."""
        self._unsynced.generation += 1
        self._unsynced.new_names = True
        while len(self._segments) > keep:
            self._drop_last()
        self._segments.push(Segment(self._disk, self.directory, base_offset, create=True))
        self._activate(Tail(base_offset, 0, None))

    def _drop_last(self) -> None:
        dropped = self._segments.pop()
        dropped.close()
        self._unsynced.forget([dropped])
        for file in dropped.files():
            self._disk.remove(file.path)
