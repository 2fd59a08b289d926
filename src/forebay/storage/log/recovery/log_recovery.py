"""Opens a log: finds its segments on the disk, and how much of them can be trusted.

After a **clean** stop nothing is scanned: the last segment's end is found from its index, the others are
only named.

After an **unclean** stop the recovery point divides the log. Everything below it had been fsynced; everything
from it on may be incomplete.

- Segments wholly below the recovery point are not scanned.
- From the segment that holds the recovery point, every batch is read, its CRC checked, and the indexes
  rebuilt.
- The first bad batch **at or above** the recovery point is where the crash tore the log: the file is cut
  there. A later segment that begins exactly where the cut one now ends has lost nothing to the cut; it and
  those after it stay. Any other later segments are removed, because messages are missing before them. If only
  the process died, and the bad batch is complete, it is not a torn write but damage: the log
  `lacks_messages`.
- If the machine lost its power (`power_lost`), a segment that does not begin where the one before it ends is
  removed too, with all later ones: the messages between were lost. If only the process died, the system has
  kept all writes, and such a gap was there before. Compaction and copying a compacted log leave gaps inside
  segments (`LogWriter._base_for`), except gaps of more than 2^31 offsets and those in logs of older versions.
- A bad batch **below** the recovery point is not a torn write but damage, and nothing is cut. The scan looks
  for the next whole batch and continues; the damaged stretch is reported, and reading it is an error. If no
  whole batch follows, or the files end before the recovery point, synced messages are gone: the log opens for
  reading only, `offline` says why and what to do.

Damage in segments that are not scanned is found when they are first read (`Segment.verify`). Missing index
files are rebuilt in any case; this is the place where it may take long. Missing indexes of aborted
transactions are detected here (txn_index_recovery.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from itertools import pairwise

from forebay.lazy import dataclass, load
from forebay.storage.disk import Disk
from forebay.storage.log.producer_snapshots import snapshot_offsets
from forebay.storage.log.recovery.swap_recovery import complete_swaps
from forebay.storage.log.recovery.txn_index_recovery import TxnIndexFiles, mark_txn_indexed
from forebay.storage.log.segment.batch_parts import CorruptBatch, Hop, WholeBatch
from forebay.storage.log.segment.batch_walk import NO_NEXT
from forebay.storage.log.segment.index import SparseIndex
from forebay.storage.log.segment.segment import DELETED, Segment, Tail
from forebay.wire.batch import HEADER_SIZE, read_header

log = logging.getLogger(__name__)

_EMPTY_FILES = "forebay.storage.log.deleted_files:empty_files"
_LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A range of a file, below the recovery point, without whole batches."""

    path: str
    position: int
    length: int
    why: str


@dataclass(slots=True, kw_only=True)
class RecoveryReport:
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    removed_segments: int = 0
    damage: list[Damage] = field(default_factory=list)
    missing_offsets: int = 0
    """Offsets below the recovery point that are no longer there."""
    damaged_end: bool = False
    """True if the log was cut at a batch that is complete, and wrong: a torn write is incomplete."""
    power_lost: bool = False
    in_new_directory: bool = False
    """True if there was nothing in the log's directory."""
    cut_epoch: tuple[int, int] | None = None
    """The last leader epoch of batches that were dropped because the log begins later, and its start."""

    @property
    def lacks_messages(self) -> bool:
        """True if messages are gone that no crash explains: the log must not count as in sync.

        Without a power failure only the write that was under way can be torn, and nothing follows it.
        """
        beyond_a_crash = self.removed_segments or self.damaged_end
        return bool(self.missing_offsets or (beyond_a_crash and not self.power_lost))


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    segments: list[Segment]
    tail: Tail
    report: RecoveryReport
    unsynced: list[Segment]
    """Sealed segments that were written but perhaps never synced."""
    unsynced_names: bool
    lost_txn_indexes: list[Segment]
    """Segments that lack entries of aborted transactions: they have to be rebuilt from the log."""
    snapshots: list[int]
    """The offsets of the producer snapshots, ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    start_offset: int
    recovery_point: int
    clean: bool
    power_lost: bool
    """True if an unclean stop may have lost unsynced writes."""
    index_interval_bytes: int
    in_new_directory: bool = False
    """True if the directory was just made: nothing is looked for in it."""
    txn_indexed: bool = False
    """True if it is recorded elsewhere that every segment has its index of aborted transactions."""
    note_start: Callable[[int], None] = lambda _: None
    """Records that the log begins later than `start_offset` says."""


def open_segments(disk: Disk, directory: str, options: OpenOptions) -> Opened:
    """Find, check and if need be repair the segments of a directory. Blocks."""
    if options.in_new_directory:
        return _create_first(disk, directory, options)
    report = RecoveryReport(power_lost=options.power_lost)
    names = complete_swaps(disk, directory)
    has_lost_beginning = _note_beginning(disk, directory, names, options)
    txn_indexes = TxnIndexFiles(disk, directory, names, is_known=options.txn_indexed)
    segments = [Segment(disk, directory, base) for base in _find_segments(disk, directory, names)]
    for segment, following in pairwise(segments):
        segment.next_base = following.base_offset
    if has_lost_beginning:
        _remove_all(disk, segments, report)
    created = not segments
    if created:
        segments.append(Segment(disk, directory, options.start_offset, create=True))
        txn_indexes.add(segments[0])
    if not created and any(_lacks_indexes(each, options) for each in _complete_segments(segments, options)):
        txn_indexes.must_exist = True
    unscanned = _load_unscanned(segments[-1], options) if options.clean or created else None
    tail = unscanned or _Recovery(disk, segments, options, report).run()
    if report.removed_segments:
        # Before the log grows again to the start of one of them: it must not come back and seem to fit.
        disk.fsync_dir(directory)
    for segment in segments[:-1]:
        _make_missing_indexes(segment, options)
    believed_to = tail.next_offset if options.clean else options.recovery_point
    lost, has_made = txn_indexes.complete(segments, believed_to)
    report.missing_offsets = max(options.recovery_point - max(tail.next_offset, options.start_offset), 0)
    _tell(directory, report)
    unsynced = (
        [] if options.clean or created else [s for s in segments if s.next_base > options.recovery_point]
    )
    for segment in unsynced:
        segment.txn_index.distrust()
    return Opened(
        segments=segments,
        tail=tail,
        report=report,
        unsynced=[segment for segment in unsynced if segment is not segments[-1]],
        # A process that wrote nothing did not sync the names of what it had made.
        unsynced_names=created or has_made or not options.clean or not any(each.size for each in segments),
        lost_txn_indexes=lost,
        snapshots=snapshot_offsets(names),
    )


def _create_first(disk: Disk, directory: str, options: OpenOptions) -> Opened:
    """The first segment of a log, in a directory without any file."""
    start = options.start_offset
    segment = Segment(disk, directory, start, create=True, in_new_directory=True)
    if not options.txn_indexed:
        mark_txn_indexed(disk, directory)
    return Opened(
        segments=[segment],
        tail=Tail(start, 0, None),
        report=RecoveryReport(
            power_lost=options.power_lost,
            in_new_directory=True,
            missing_offsets=max(options.recovery_point - start, 0),
        ),
        unsynced=[],
        unsynced_names=True,
        lost_txn_indexes=[],
        snapshots=[],
    )


def _complete_segments(segments: list[Segment], options: OpenOptions) -> list[Segment]:
    """The segments whose indexes were written to their end, if the files are all there."""
    return segments if options.clean else [s for s in segments if s.next_base <= options.recovery_point]


def _note_beginning(disk: Disk, directory: str, names: list[str], options: OpenOptions) -> bool:
    """See `_lost_beginning`. Where the disk is too full to record it, deleted segments make room."""
    try:
        return _lost_beginning(names, options)
    except OSError:
        with suppress(OSError):
            deleted = [f"{directory}/{name}" for name in names if name.endswith(DELETED)]
            load(_EMPTY_FILES)(disk, directory, deleted)
        raise  # it is opened again


def _lost_beginning(names: list[str], options: OpenOptions) -> bool:
    """True if a power failure took the first segments, which were not synced, and left later ones.

    Deleted segments are still there under their other names, or it was recorded that the log begins after
    them. That is done here before those names are removed.
    """
    first = min(_bases(names, ".log"), default=0)
    if first <= options.start_offset:
        return False
    was_deleted = min(_bases(names, f".log{DELETED}"), default=first) < first
    if options.clean or not options.power_lost or was_deleted or first <= options.recovery_point:
        options.note_start(first)
        return False
    return True


def _bases(names: list[str], suffix: str) -> set[int]:
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return {int(stem) for stem in stems if stem.isdigit()}


def _remove_all(disk: Disk, segments: list[Segment], report: RecoveryReport) -> None:
    for segment in segments:
        _remove(disk, segment, report)
    segments.clear()


def _remove(disk: Disk, segment: Segment, report: RecoveryReport) -> None:
    report.truncated_bytes += segment.size
    report.removed_segments += 1
    segment.close()
    for file in segment.files():
        disk.remove(file.path)


def _load_unscanned(last: Segment, options: OpenOptions) -> Tail | None:
    try:
        return last.load_tail(options.index_interval_bytes)
    except CorruptBatch as bad:
        log.error("log damaged although it was closed cleanly", extra={"why": str(bad)})
        return None


def _lacks_indexes(segment: Segment, options: OpenOptions) -> bool:
    """True if the indexes of a sealed segment, or of one that was closed, are not there.

    It has a time entry, unless none of its batches has a time. If it has more than one batch and is not
    small, it has an entry of offsets too.
    """

    def has_entries(index: SparseIndex) -> bool:
        # A power failure may leave a part of the first entry, or zeros.
        return bool(len(index) if options.power_lost and not options.clean else index.file.size())

    has_offsets = segment.size <= options.index_interval_bytes or has_entries(segment.index)
    return bool(segment.size) and not (has_offsets and has_entries(segment.time_index))


def _make_missing_indexes(sealed: Segment, options: OpenOptions) -> None:
    """Rebuild indexes that were removed: a later reader could not wait for it.

    If no batch has a timestamp, that is known from now on.
    """
    if not _lacks_indexes(sealed, options):
        return
    log.info("indexes are missing and are made anew", extra={"path": sealed.file.path})
    try:
        sealed.rebuild_index(options.index_interval_bytes)
    except CorruptBatch as bad:
        log.error("segment damaged: its indexes are made of what is readable", extra={"why": str(bad)})
    sealed.seal()


def _find_segments(disk: Disk, directory: str, names: list[str]) -> list[int]:
    bases = _bases(names, ".log")
    for name in names:
        stem, _, suffix = name.rpartition(".")
        path = f"{directory}/{name}"
        orphan = suffix in ("index", "timeindex", "txnindex") and stem.isdigit() and int(stem) not in bases
        if orphan or name.endswith(_LEFTOVERS):
            disk.remove(path)
    return sorted(bases)


class _Recovery:
    """The scan after an unclean stop, from the segment of the recovery point to the end."""

    def __init__(
        self, disk: Disk, segments: list[Segment], options: OpenOptions, report: RecoveryReport
    ) -> None:
        self._disk = disk
        self._segments = segments
        self._recovery_point = options.recovery_point
        self._power_lost = options.power_lost
        self._interval = options.index_interval_bytes
        self._report = report
        self._was_cut = False
        """True if the segment scanned last lost its end."""

    def run(self) -> Tail:
        number = self._first_to_scan()
        tail = self._scan(self._segments[number])
        while number + 1 < len(self._segments) and self._continues(tail, self._segments[number + 1]):
            number += 1
            tail = self._scan(self._segments[number])
        self._remove_from(number + 1)
        return tail

    def _continues(self, tail: Tail, following: Segment) -> bool:
        """True if nothing is missing between the scanned segments and the next one."""
        if following.base_offset == tail.next_offset or following.base_offset <= self._recovery_point:
            return True
        return not self._power_lost and not self._was_cut

    def _first_to_scan(self) -> int:
        number = len(self._segments) - 1
        while number > 0 and self._segments[number].base_offset > self._recovery_point:
            number -= 1
        return number

    def _remove_from(self, number: int) -> None:
        for segment in self._segments[number:]:
            _remove(self._disk, segment, self._report)
        del self._segments[number:]
        self._segments[-1].next_base = NO_NEXT

    def _scan(self, segment: Segment) -> Tail:
        """Check every batch of a segment, cut or report bad ones, and rebuild its indexes."""
        segment.forget_index()
        self._was_cut = False
        position, next_offset, indexed = 0, segment.base_offset, 0
        while position < segment.size:
            try:
                for at, _, header in segment.batches(position, min_offset=next_offset):
                    hop = Hop.over(header, at)
                    indexed = segment.note(hop, indexed, self._interval)
                    if segment.index.full_chunk:
                        segment.flush_index()
                    position, next_offset = hop.position + hop.size, hop.last_offset + 1
            except CorruptBatch as bad:
                resumed = self._pass_over(segment, bad, next_offset)
                if resumed is None:
                    break
                position = resumed.position
                segment.add_entry(resumed.header.last_offset, position)
                indexed = position
        self._report.scanned_bytes += segment.size
        segment.seal()
        damaged = any(damage.path == segment.file.path for damage in self._report.damage)
        segment.trusted_from = segment.size if damaged else 0
        return Tail(next_offset, indexed, segment.first_timestamp() if position else None)

    def _pass_over(self, segment: Segment, bad: CorruptBatch, next_offset: int) -> WholeBatch | None:
        """Handle a bad batch: returns the whole batch to continue with, or None if the segment ends here."""
        if next_offset >= self._recovery_point:
            self._report.damaged_end |= not _is_cut_short(segment, bad.position)
            self._cut(segment, bad.position)
            return None
        resumed = segment.next_whole_batch(bad.position, segment.size, next_offset)
        end = segment.size if resumed is None else resumed.position
        self._report.damage.append(
            Damage(path=segment.file.path, position=bad.position, length=end - bad.position, why=str(bad))
        )
        return resumed

    def _cut(self, segment: Segment, position: int) -> None:
        self._was_cut = True
        self._report.truncated_bytes += segment.size - position
        segment.file.truncate(position)
        segment.file.datasync()  # if it came back after the segment is sealed, it would look like damage
        segment.size = position


def _is_cut_short(segment: Segment, position: int) -> bool:
    """True if a bad batch ends with the file, before its own end, like the last write of a process."""
    header = segment.file.pread(HEADER_SIZE, position)
    return len(header) < HEADER_SIZE or position + read_header(header).size > segment.size


def _tell(directory: str, report: RecoveryReport) -> None:
    if report.truncated_bytes:
        facts: dict[str, object] = {"directory": directory, "bytes": report.truncated_bytes}
        facts["removed_segments"] = report.removed_segments
        if report.lacks_messages:
            log.error("log damaged: what lay behind the damage is cut off", extra=facts)
        else:
            log.warning("torn end of log cut off", extra=facts)
    for damage in report.damage:
        log.error("log damaged", extra={"why": damage.why, "bytes": damage.length})
    if report.missing_offsets:
        log.error(
            "synced messages missing", extra={"directory": directory, "offsets": report.missing_offsets}
        )
