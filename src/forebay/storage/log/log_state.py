"""The state of a log for appending, and what is left of it when a write fails.

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

logger = logging.getLogger(__name__)

CLOSED = -1
"""As a limit of bytes: makes every append stop and check if it may continue."""
_RETRY_SECONDS = 1.0
_NO_LIMIT = 2**63


class LogState:
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
        self.on_roll: Callable[[int], object] | None = None
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
        if not self._segments:
            return self.end_offset  # offline for good: it could not begin anew
        return self._segments[0].base_offset

    @property
    def has_deleted(self) -> bool:
        """True if files of deleted segments are still to be removed."""
        return self._segments.has_deleted

    @property
    def is_reap_due(self) -> bool:
        return self._segments.is_reap_due(monotonic_ms(self._clock), unread=self._removes_unread)

    @property
    def _removes_unread(self) -> bool:
        """True if deleted segments that nobody reads do not wait."""
        return self.config.deleted_bytes_max is not None

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

    def keep_snapshot(self, data: bytes, *, sync: bool) -> None:
        """Write the producers' state as of the end of the log, and note what of it is synced."""
        unsynced, offset = self._unsynced, self.end_offset
        if not sync and offset in (unsynced.snapshot, unsynced.synced_snapshot):
            return  # it tells the same, and is whole
        with unsynced.lock:
            synced = -1 if unsynced.synced_snapshot is None else unsynced.synced_snapshot
            useless = unsynced.never_synced
        self._snapshots.write(
            offset,
            data,
            sync=sync,
            needed=min(self.recovery_point, synced),
            useless=useless,
            kept_from=self.snapshots_kept_from,
        )
        with unsynced.lock:
            if sync:
                unsynced.synced_snapshot, unsynced.snapshot = offset, None
            else:
                unsynced.snapshot = offset

    @property
    def has_unsynced_snapshot(self) -> bool:
        """True if the next sync includes a snapshot: a power failure may damage it until then."""
        return self._unsynced.snapshot is not None

    @property
    def failed_snapshots(self) -> int:
        """How many could not be synced since one was."""
        return self._unsynced.failed_snapshots

    @property
    def is_written(self) -> bool:
        """True if nothing waits to be written, or to be reported as lost: what the owner knows of the log is
        what its file has."""
        return not self._pending and self._lost is None

    def tells_producers_before(self, offset: int) -> bool:
        """True if a synced snapshot tells of all producers of batches before the offset."""
        return self._unsynced.tells_producers_before(offset)

    def has_synced_snapshot(self, begin: int, end: int) -> bool:
        """True if one that was taken between these offsets is known to be synced."""
        synced = self._unsynced.synced_snapshot
        return synced is not None and begin <= synced <= end

    @property
    def snapshots_kept_from(self) -> int | None:
        return self.begin_offset if self.config.keeps_snapshots else None

    def configure(self, config: LogConfig) -> None:
        self.config = config
        self._set_limits(self._first_timestamp)

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
        self._roll_bytes = CLOSED if self.offline is not None else self.config.segment_bytes
        self._roll_offset = self._active.base_offset + MAX_RELATIVE_OFFSET
        # An empty segment stops its first batch, whose timestamp begins the segment's clock.
        self._roll_timestamp = (
            -_NO_LIMIT
            if first_timestamp is None
            else first_timestamp + self.config.age_max_ms(self.directory, self._active.base_offset)
        )

    # --- failing -------------------------------------------------------------------------------------------

    @property
    def refuses(self) -> bool:
        """True if an append would be refused without being tried."""
        return self.offline is not None and not self._may_try_again()

    @property
    def offline_for_good(self) -> bool:
        """True if no append will be tried again before the log is reopened."""
        return self._final

    def _fail(self, error: Exception) -> StorageError:
        """Drop queued batches, refuse appends from now on, and return the error to raise."""
        if self.offline is None:
            self.offline = f"cannot write {self._file.path}: {error}"
            logger.error("log offline", extra={"directory": self.directory, "error": str(error)})
            if self.tended is not None:
                self.tended.offline.add(self)
        self._roll_bytes = CLOSED
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
        self._roll_bytes = CLOSED
