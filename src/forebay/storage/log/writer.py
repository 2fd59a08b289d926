"""The writing half of a log: it queues, writes, rolls, and on failure keeps what is stored.

`append` only queues: the batch is a view of the buffer that the request was received into, and one
`write_pending` at the end of the read event writes everything queued since the last. Any other operation that
needs the bytes (a read, a roll) writes them first.

When a write fails, queued batches are dropped, the file keeps its whole batches, `offline` says why, and
`append` or `write_pending` raises StorageError. If another call had to write, `write_pending` raises it
later, so no queued batch is taken for stored. Reads continue. One append per second tries again, so a disk
that has room again needs no restart; it first cuts off what the failed write left. A failed sync is final.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from forebay.clock import Clock, monotonic_ms
from forebay.errors import StorageError
from forebay.storage.disk import Disk, File
from forebay.storage.log.config import LogConfig
from forebay.storage.log.producer_snapshots import Snapshots
from forebay.storage.log.recovery.log_recovery import Opened
from forebay.storage.log.segment.batch_walk import MAX_RELATIVE_OFFSET
from forebay.storage.log.segment.segment import Segment, Tail
from forebay.storage.log.segment.segment_list import SegmentList
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.storage.log.tended_logs import TendedLogs
from forebay.storage.log.unsynced import Unsynced
from forebay.wire.batch import BatchHeader

logger = logging.getLogger(__name__)

HINTS_MAX = 64
_RETRY_SECONDS = 1.0
_NO_LIMIT = 2**63
_CLOSED = -1
"""As a limit of bytes: makes every append stop and check if it may continue."""


class LogWriter:
    __slots__ = (
        "_aborted",
        "_active",
        "_clock",
        "_disk",
        "_file",
        "_final",
        "_first_timestamp",
        "_flush_due",
        "_hints",
        "_index_at",
        "_lost",
        "_old_hints",
        "_pending",
        "_position",
        "_retry_at",
        "_roll_bytes",
        "_roll_offset",
        "_roll_timestamp",
        "_segments",
        "_snapshot_of",
        "_snapshots",
        "_unsynced",
        "_written_end",
        "config",
        "directory",
        "end_offset",
        "has_aborted",
        "lost_txn_indexes",
        "offline",
        "on_roll",
        "recovery_point",
        "start_offset",
        "tended",
        "was_closed",
    )

    _active: Segment
    _file: File
    _position: int
    """The position of the next batch: the written size and the queued bytes."""
    _index_at: int
    """A batch that begins beyond this position gets an index entry."""
    _first_timestamp: int | None
    """The timestamp of the active segment's first batch, by which its age counts; None while it is empty."""
    _flush_due: bool
    _roll_bytes: int
    _roll_offset: int
    _roll_timestamp: int
    _written_end: int
    """The end offset without queued batches."""
    _hints: dict[int, tuple[Segment, int]]
    _old_hints: dict[int, tuple[Segment, int]]
    end_offset: int

    def __init__(self, disk: Disk, directory: str, config: LogConfig, clock: Clock, opened: Opened) -> None:
        self._disk = disk
        self.config = config
        self._clock = clock
        self._segments = SegmentList(opened.segments)
        self._snapshots = Snapshots(disk, directory, opened.snapshots)
        self._snapshot_of: tuple[int, int] | None = None
        """The (generation, end offset) of which there is a whole snapshot of the producers on the disk."""
        self._unsynced = Unsynced(opened.unsynced, new_names=opened.unsynced_names)
        self.was_closed = False
        """True if the process before has closed it, and with it synced what it had written beside it."""
        self._pending: list[memoryview] = []
        self._aborted: list[AbortedTxn] = []
        """Transactions ended by queued markers: they are added to the index together."""
        self._lost: StorageError | None = None
        self._retry_at = 0.0
        self._final = False
        self.directory = directory
        self.offline: str | None = None
        self.on_roll: Callable[[int], None] | None = None
        """Called with the end offset when a new segment begins, before anything is in it."""
        self.recovery_point = 0
        self.start_offset = 0
        self.has_aborted = any(len(segment.txn_index) for segment in self._segments)
        """True if any segment may have aborted transactions: most logs never have one."""
        self.tended: TendedLogs | None = None
        """Where a log is noted that needs upkeep."""
        self.lost_txn_indexes = opened.lost_txn_indexes
        """Segments whose index of aborted transactions has to be rebuilt before anybody reads the log."""
        self._activate(opened.tail)

    @property
    def size(self) -> int:
        return self._segments.size + self._position - self._active.size

    @property
    def begin_offset(self) -> int:
        """The start of the first segment: `start_offset`, or lower if only a part of it is deleted."""
        return self._segments[0].base_offset

    @property
    def has_deleted(self) -> bool:
        """True if files of deleted segments are still to be removed."""
        return self._segments.has_deleted

    @property
    def is_reap_due(self) -> bool:
        return self._segments.is_reap_due(monotonic_ms(self._clock))

    @property
    def generation(self) -> int:
        """Changes whenever the end of the log is cut."""
        return self._unsynced.generation

    def note_snapshot(self) -> None:
        """The disk has a whole snapshot of the producers as of the end of the log."""
        self._snapshot_of = self.generation, self.end_offset

    @property
    def has_snapshot(self) -> bool:
        """True if the producers need not be saved again: nothing was appended or cut since they were."""
        return self._snapshot_of == (self.generation, self.end_offset)

    @property
    def snapshots_kept_from(self) -> int | None:
        return self.begin_offset if self.config.keeps_snapshots else None

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._set_limits(self._first_timestamp)

    # --- appending -----------------------------------------------------------------------------------------

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

    def _activate(self, tail: Tail) -> None:
        """Take the last segment as the one to append to."""
        self._active = self._segments[-1]
        self._file = self._active.file
        self._position = self._active.size
        self._index_at = tail.indexed_position + self.config.index_interval_bytes
        self._flush_due = False
        self.end_offset = tail.next_offset
        self._written_end = tail.next_offset
        self._hints = {}
        self._old_hints = {}
        self._set_limits(tail.first_timestamp)

    def _set_limits(self, first_timestamp: int | None) -> None:
        self._first_timestamp = first_timestamp
        self._roll_bytes = _CLOSED if self.offline is not None else self.config.segment_bytes
        self._roll_offset = self._active.base_offset + MAX_RELATIVE_OFFSET
        # An empty segment stops its first batch, whose timestamp begins the segment's clock.
        self._roll_timestamp = (
            -_NO_LIMIT
            if first_timestamp is None
            else first_timestamp + self.config.age_max_ms(self.directory, self._active.base_offset)
        )

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        segment = self._active
        segment.add_entry(last_offset, position)
        self._index_at = position + self.config.index_interval_bytes
        self._flush_due = segment.index.full_chunk
        if len(segment.index) * 8 >= self.config.segment_index_bytes - 8:
            self._roll_bytes = _CLOSED

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

    @property
    def refuses(self) -> bool:
        """True if an append would be refused without being tried."""
        return self.offline is not None and not self._may_try_again()

    @property
    def offline_for_good(self) -> bool:
        """True if no append will be tried again before the log is reopened."""
        return self._final

    # --- failing -------------------------------------------------------------------------------------------

    def _fail(self, error: Exception) -> StorageError:
        """Drop queued batches, refuse appends from now on, and return the error to raise."""
        if self.offline is None:
            self.offline = f"cannot write {self._file.path}: {error}"
            logger.error("log offline", extra={"directory": self.directory, "error": str(error)})
            if self.tended is not None:
                self.tended.offline.add(self)
        self._roll_bytes = _CLOSED
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        self._pending.clear()
        self._aborted.clear()
        segment = self._active
        self._drop_aborted(segment)
        segment.index.drop_from_value(segment.size)
        segment.time_index.drop_from_value(self._written_end - segment.base_offset)
        self._position = segment.size
        self.end_offset = self._written_end
        try:
            tail = segment.load_tail(self.config.index_interval_bytes)
            self._index_at = tail.indexed_position + self.config.index_interval_bytes
            self._set_limits(tail.first_timestamp)
        except (OSError, StorageError):
            # The limits stay those of the batches that were not written: at worst a roll comes early.
            logger.warning("end of segment not readable", extra={"path": self._file.path})
        return StorageError(self.offline)

    def _drop_aborted(self, segment: Segment) -> None:
        """Remove transactions from the index whose markers were not written after all."""
        try:
            segment.txn_index.truncate(self._written_end)
        except (OSError, StorageError) as error:
            # Another transaction's messages would be taken for aborted ones.
            self.take_offline(f"cannot repair {segment.txn_index.file.path}: {error}")

    def _may_try_again(self) -> bool:
        # The loss must be reported to the caller before new batches are accepted.
        return not self._final and self._lost is None and self._clock.monotonic() >= self._retry_at

    def _try_again(self) -> None:
        if not self._may_try_again():
            raise StorageError(self.offline or "the log is offline")
        self._cut_torn()
        self.offline = None
        self._set_limits(self._first_timestamp)

    def _cut_torn(self) -> None:
        """Cut off what a failed write may have left after the last batch, if that failed then too.

        In the last segment recovery would find it. In a sealed one it would look like damage.
        """
        try:
            self._file.truncate(self._active.size)
        except OSError as error:
            raise self._fail(error) from error

    def take_offline(self, reason: str) -> None:
        """Refuse writes until the log is opened again."""
        self._final = True
        self.offline = reason
        self._roll_bytes = _CLOSED
