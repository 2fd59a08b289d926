"""Reading a log for its delay notes, in a thread: only control batches are unpacked.

What is damaged, or makes no sense, is passed over, and the rest counts. What a marker said that is damaged is
known from the list of aborted transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol

from forebay.errors import ProtocolError, StorageError
from forebay.lazy import dataclass
from forebay.storage.delays.index import Ended, Entry, Noted, Undecided
from forebay.storage.disk import FileClosed
from forebay.storage.log.segment.batch_file import BatchFile, Stretch
from forebay.storage.log.segment.batch_parts import CorruptBatch, DamagedPart
from forebay.wire.batch import BatchHeader, EndTxnMarker, build_marker, read_marker
from forebay.wire.state.delay_notes import NewerNote, Note, binds, is_note, note_value, parse_note

_NOTE_BYTES_MAX = 4 << 20
_BATCHES_MAX = 20_000
"""So much is read in one go, so that the index moves on in between."""
_MARKER_BYTES = len(build_marker(EndTxnMarker(0, 0, commit=True, coordinator_epoch=0), timestamp=0))


class Aborted(Protocol):
    """A transaction that was aborted."""

    @property
    def producer_id(self) -> int: ...

    @property
    def last_offset(self) -> int:
        """Where its marker is."""


AbortedIn = Callable[[int, int], Sequence[Aborted]]
"""The aborted transactions with something in a range of offsets. Any thread; may block."""


class PassedOver(NamedTuple):
    """A batch that could not be read."""

    offset: int
    reason: str


class Reached(NamedTuple):
    """Where reading has come to in a file."""

    file: BatchFile
    """A log that is cut or compacted has another one for the same offsets."""
    place: int
    """The batch there begins with `offset`, or a later one."""
    offset: int


@dataclass(slots=True)
class NotesRead:
    """The notes that a part of the log holds."""

    position: int
    """The part ends here: what follows is to be read next."""
    leader_epoch: int
    reached: Reached | None = None
    """Where that is; None if nothing could be read."""
    entries: list[Entry] = field(default_factory=list)
    note_bytes: int = 0
    has_more: bool = False
    """True if reading stopped before the end, because there was much to read."""
    passed_over: list[PassedOver] = field(default_factory=list)


class _Bound(NamedTuple):
    """A note that counts if the next batch is its own."""

    header: BatchHeader
    value: bytes
    note: Note


def read_notes(
    stretches: Iterable[Stretch], aborted: AbortedIn, *, position: int, leader_epoch: int, end_offset: int
) -> NotesRead:
    """Read from a position on, below `end_offset`, as far as possible. Blocks.

    Raises StorageError if it cannot go on at all.
    """
    read = NotesRead(position, leader_epoch)
    reader = _Reader(read, aborted, position, end_offset)
    try:
        for stretch in stretches:
            if not reader.take(stretch):
                break
    except (CorruptBatch, OSError) as error:
        if read.position > position and not isinstance(error, FileClosed):
            return read  # the next call begins with what stopped this one
        if isinstance(error, OSError):
            raise StorageError(f"the delay notes cannot be read: {error}") from error
        raise
    return read


def go_on(stretches: Sequence[Stretch], reached: Reached | None, position: int) -> Sequence[Stretch]:
    """The same stretches without what was read before, which may lie on sectors that have gone bad since."""
    if reached is None or not stretches or reached.offset > position:
        return stretches
    first = stretches[0]
    if first.file is not reached.file or not first.position < reached.place <= first.end:
        return stretches
    return [first._replace(position=reached.place), *stretches[1:]]


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
        for part in stretch.file.read(stretch.position, end=stretch.end):
            if isinstance(part, DamagedPart):
                self._pass_over(stretch.file, part)
                continue
            batch, header = part.data, part.header
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
                self._bound = self._open(batch, header)
                if self._bound is not None:
                    continue  # the position stays before the note until its batch is seen
            read.position, read.leader_epoch = header.next_offset, header.partition_leader_epoch
            read.reached = Reached(stretch.file, part.position + header.size, read.position)
        return True

    def _pass_over(self, file: BatchFile, part: DamagedPart) -> None:
        """Leave out a part of a file. Raises CorruptBatch until something is known to follow it."""
        read, next_offset = self._read, part.next_offset
        if next_offset is not None and next_offset <= read.position:
            return  # the damage lies where this need not be read
        bound, self._bound = self._bound, None
        if next_offset is None and part.claimed is not None and part.claimed.next_offset == self._end_offset:
            next_offset = self._end_offset  # the log ends where the damaged batch says that it does
        if part.unreadable is not None:
            raise part.unreadable
        ends_file = part.end == file.size
        if next_offset is None or (ends_file and next_offset > self._end_offset):
            raise CorruptBatch(file.file.path, part.position, part.why)
        if bound is not None:
            _settle_damaged(read, bound, part)
        read.passed_over.append(PassedOver(max(part.first_offset, read.position), part.why))
        read.entries += self._ended_within(part, next_offset)
        if ends_file:
            read.position = next_offset
            read.reached = Reached(file, part.end, next_offset)

    def _ended_within(self, part: DamagedPart, next_offset: int) -> list[Ended]:
        """The transactions that ended in a damaged part, and how.

        Aborted transactions are listed. That one was committed has only the damaged marker for a witness: it
        is believed if the part has the size of a marker and is not listed.
        """
        first_offset = max(part.first_offset, self._read.position)
        listed = [
            each for each in self._aborted(first_offset, next_offset) if each.last_offset >= first_offset
        ]
        ended = [Ended(each.producer_id, commit=False) for each in listed if each.last_offset < next_offset]
        if not ended and part.claimed is not None and _may_be_marker(part, part.claimed):
            ended.append(Ended(part.claimed.producer_id, commit=True))
        return ended

    def _open(self, batch: memoryview, header: BatchHeader) -> _Bound | None:
        """Take note of a control batch; what waits for the next batch, if it does."""
        try:
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

    def _note(self, batch: memoryview, header: BatchHeader) -> _Bound | None:
        value = note_value(batch)
        if value is None:
            return None
        self._read.note_bytes += header.size
        note = parse_note(value, header.next_offset)
        if note.bound:
            return _Bound(header, value, note)
        self._read.entries.append(Noted(header.base_offset, note.changes, bound=False))
        return None

    def _marker(self, batch: memoryview) -> None:
        marker = read_marker(batch)
        if marker is not None:
            self._read.entries.append(Ended(marker.producer_id, marker.commit))

    def _as_listed(self, marker: BatchHeader) -> Ended:
        """The end of a transaction whose marker cannot be read."""
        listed = self._aborted(marker.base_offset, marker.next_offset)
        is_abort = any(transaction.last_offset == marker.base_offset for transaction in listed)
        return Ended(marker.producer_id, commit=not is_abort)


def _may_be_marker(part: DamagedPart, claimed: BatchHeader) -> bool:
    is_like_one = claimed.is_control and claimed.is_transactional and not claimed.last_offset_delta
    return is_like_one and part.end - part.position == _MARKER_BYTES


def _settle(read: NotesRead, bound: _Bound, after: BatchHeader) -> None:
    note = bound.header
    if not binds(note, after):
        return  # it was left alone by a crash: its producer has sent the batch again, if at all
    if after.is_transactional:
        read.entries.append(Undecided(note.base_offset, note.next_offset, after.producer_id, bound.value))
    else:
        read.entries.append(Noted(note.base_offset, bound.note.changes))


def _settle_damaged(read: NotesRead, bound: _Bound, part: DamagedPart) -> None:
    """The batch that a note is bound to is damaged. It is there, so the note counts: one write brought both.

    A crash that tears the write leaves no damage, because opening the log cuts it off.
    """
    note, claimed = bound.header, part.claimed
    if claimed is not None and claimed.is_transactional:
        read.entries.append(Undecided(note.base_offset, note.next_offset, claimed.producer_id, bound.value))
    else:
        read.entries.append(Noted(note.base_offset, bound.note.changes))
