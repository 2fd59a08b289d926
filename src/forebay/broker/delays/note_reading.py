"""Reading a log for its delay notes, in a thread: only control batches are opened, the others hopped over.

A control batch that is damaged, or makes no sense, is passed over, and the others count. What a marker said
that is damaged is known from the list of aborted transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from forebay.errors import ProtocolError, StorageError
from forebay.storage.delays.index import Ended, Entry, Noted, Undecided
from forebay.storage.log.segment.batch_file import NO_NEXT, BatchFile, CorruptBatch, Stretch
from forebay.storage.log.segment.segment import Segment
from forebay.wire.batch import BatchHeader, crc_ok, read_marker
from forebay.wire.state.delay_notes import NewerNote, Note, binds, is_note, note_value, parse_note

_NOTE_BYTES_MAX = 4 << 20
_BATCHES_MAX = 20_000
"""So much is read in one go, so that the index moves on in between."""


class Aborted(Protocol):
    """A transaction that was aborted."""

    @property
    def last_offset(self) -> int:
        """Where its marker is."""


AbortedIn = Callable[[int, int], Sequence[Aborted]]
"""The aborted transactions with something in a range of offsets. Any thread; may block."""


class PassedOver(NamedTuple):
    """A batch that could not be read."""

    offset: int
    reason: str


@dataclass(slots=True)
class NotesRead:
    """What a part of the log says."""

    position: int
    """The part ends here: what follows is to be read next."""
    leader_epoch: int
    entries: list[Entry] = field(default_factory=list)
    note_bytes: int = 0
    has_more: bool = False
    """Whether it ended before the end, because it was much."""
    passed_over: list[PassedOver] = field(default_factory=list)


class _Bound(NamedTuple):
    """A note that counts if the next batch is its own."""

    header: BatchHeader
    value: bytes
    note: Note


def read_notes(
    stretches: Iterable[Stretch], aborted: AbortedIn, *, position: int, leader_epoch: int, end_offset: int
) -> NotesRead:
    """Read from a position on, below `end_offset`. Blocks. Raises StorageError if it cannot go on at all."""
    read = NotesRead(position, leader_epoch)
    reader = _Reader(read, aborted, position, end_offset)
    try:
        for stretch in stretches:
            rest: Stretch | None = stretch
            while rest is not None:
                part, rest = rest, None
                try:
                    if not reader.take(part):
                        return read
                except CorruptBatch as error:
                    rest = reader.pass_over(part, error)
    except CorruptBatch:
        if read.position == position:
            raise
    except OSError as error:
        raise StorageError(f"the delay notes cannot be read: {error}") from error
    return read


class _Reader:
    def __init__(self, read: NotesRead, aborted: AbortedIn, position: int, end_offset: int) -> None:
        self._read = read
        self._aborted = aborted
        self._position = position
        self._end_offset = end_offset
        self._bound: _Bound | None = None
        self._batches = 0

    def take(self, stretch: Stretch) -> bool:
        """Read a part of a file; whether to go on with the next."""
        read = self._read
        for at, header in stretch.file.headers(stretch.position, stretch.end):
            if header.last_offset < self._position:
                continue
            if header.base_offset >= self._end_offset:
                return False
            self._batches += 1
            is_much = read.note_bytes > _NOTE_BYTES_MAX or self._batches > _BATCHES_MAX
            if is_much and self._bound is None:  # a note is never parted from its batch, however large it is
                read.has_more = True
                return False
            if self._bound is not None:
                _settle(read, self._bound, header)
                self._bound = None
            if header.is_control and header.record_count:
                self._bound = self._open(stretch.file, at, header)
                if self._bound is not None:
                    continue  # the position stays before the note until its batch is seen
            read.position, read.leader_epoch = header.next_offset, header.partition_leader_epoch
        return True

    def pass_over(self, part: Stretch, error: CorruptBatch) -> Stretch | None:
        """The headers do not lead on: what to read then, from the next batch that the offset index knows."""
        file, read = part.file, self._read
        self._bound = None
        position = file.position_after(error.position) if isinstance(file, Segment) else None
        if position is not None and position < part.end:
            _, header = next(file.headers(position, part.end))
            if header.base_offset > read.position:  # otherwise the damage lies where this need not be read
                read.passed_over.append(PassedOver(read.position, str(error)))
            return Stretch(file, position, part.end)
        if file.next_base == NO_NEXT or file.next_base > self._end_offset:
            raise error  # until there is another file to go on with
        read.passed_over.append(PassedOver(read.position, f"{error}, and the file to its end"))
        read.position = max(read.position, file.next_base)
        return None

    def _open(self, file: BatchFile, at: int, header: BatchHeader) -> _Bound | None:
        """Take note of a control batch; what waits for the next batch, if it does."""
        batch = file.file.pread(header.size, at)
        try:
            if not crc_ok(batch, 0, header.size):
                raise ProtocolError("it fails its CRC")
            if is_note(header):
                return self._note(batch, header)
            self._marker(batch)
        except NewerNote as error:
            raise StorageError(f"the delay notes cannot be read: {error}") from error
        except ProtocolError as error:
            what = "a delay note" if is_note(header) else "the marker of a transaction"
            self._read.passed_over.append(PassedOver(header.base_offset, f"{what}: {error}"))
            if not is_note(header):
                self._read.entries.append(self._as_listed(header))
        return None

    def _note(self, batch: bytes, header: BatchHeader) -> _Bound | None:
        value = note_value(batch)
        if value is None:
            return None
        self._read.note_bytes += header.size
        note = parse_note(value, header.next_offset)
        if note.bound:
            return _Bound(header, value, note)
        self._read.entries.append(Noted(header.base_offset, note.changes, bound=False))
        return None

    def _marker(self, batch: bytes) -> None:
        marker = read_marker(batch)
        if marker is not None:
            self._read.entries.append(Ended(marker.producer_id, marker.commit))

    def _as_listed(self, marker: BatchHeader) -> Ended:
        """What a marker said that cannot be read."""
        listed = self._aborted(marker.base_offset, marker.next_offset)
        is_abort = any(transaction.last_offset == marker.base_offset for transaction in listed)
        return Ended(marker.producer_id, commit=not is_abort)


def _settle(read: NotesRead, bound: _Bound, after: BatchHeader) -> None:
    note = bound.header
    if not binds(note, after):
        return  # it was left alone by a crash: its producer has sent the batch again, if at all
    if after.is_transactional:
        read.entries.append(Undecided(note.base_offset, note.next_offset, after.producer_id, bound.value))
    else:
        read.entries.append(Noted(note.base_offset, bound.note.changes))
