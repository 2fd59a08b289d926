"""Reading a log for its delay notes, in a thread: only control batches are opened, the others hopped over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from forebay.errors import ProtocolError, StorageError
from forebay.storage.delay_index import Ended, Entry, Noted, Undecided
from forebay.storage.log.segment.batch_file import BatchFile, Stretch
from forebay.wire.batch import BatchHeader, crc_ok, read_marker, records
from forebay.wire.state.delay_notes import binds, is_note, parse_note, read_note

_NOTE_BYTES_MAX = 4 << 20
_BATCHES_MAX = 20_000
"""So much is read in one go, so that the index moves on in between."""


class _Bound(NamedTuple):
    """A note that counts if the next batch is its own."""

    header: BatchHeader
    batch: bytes


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


def read_notes(
    stretches: Iterable[Stretch], *, position: int, leader_epoch: int, end_offset: int
) -> NotesRead:
    """Read from a position on, below `end_offset`. Blocks. Raises StorageError."""
    read = NotesRead(position, leader_epoch)
    bound: _Bound | None = None
    batches = 0
    try:
        for stretch in stretches:
            for at, header in stretch.file.headers(stretch.position, stretch.end):
                if header.last_offset < position:
                    continue
                if header.base_offset >= end_offset:
                    return read
                batches += 1
                is_much = read.note_bytes > _NOTE_BYTES_MAX or batches > _BATCHES_MAX
                if is_much and bound is None:  # a note is never parted from its batch, however large it is
                    read.has_more = True
                    return read
                if bound is not None:
                    _settle(read, bound, header)
                    bound = None
                if header.is_control and header.record_count:
                    bound = _open(read, stretch.file, at, header)
                    if bound is not None:
                        continue  # the position stays before the note until its batch is seen
                read.position, read.leader_epoch = header.next_offset, header.partition_leader_epoch
    except (OSError, ProtocolError) as error:
        raise StorageError(f"the delay notes cannot be read: {error}") from error
    return read


def _open(read: NotesRead, file: BatchFile, at: int, header: BatchHeader) -> _Bound | None:
    """Take note of a control batch; what waits for the next batch, if it does."""
    batch = file.file.pread(header.size, at)
    if not crc_ok(batch, 0, header.size):
        raise StorageError(f"the batch at offset {header.base_offset} of {file.file.path} fails its CRC")
    if not is_note(header):
        marker = read_marker(batch)
        if marker is not None:
            read.entries.append(Ended(marker.producer_id, marker.commit))
        return None
    note = read_note(batch, header)
    if note is None:
        return None
    read.note_bytes += header.size
    if note.bound:
        return _Bound(header, batch)
    read.entries.append(Noted(header.base_offset, note.changes))
    return None


def _settle(read: NotesRead, bound: _Bound, after: BatchHeader) -> None:
    note = bound.header
    if not binds(note, after):
        return  # it was left alone by a crash: its producer has sent the batch again, if at all
    record = next(iter(records(bound.batch, 2**31 - 1)))
    assert record.value is not None
    if after.is_transactional:
        read.entries.append(Undecided(note.base_offset, note.next_offset, after.producer_id, record.value))
    else:
        read.entries.append(Noted(note.base_offset, parse_note(record.value, note.next_offset).changes))
