"""Reads past damage for share groups: the intact batches of a log, and the offsets that are lost.

Other consumers stop where a batch is damaged or the disk cannot read it. A share group continues: intact
records are delivered, and only the others are given up. So where a read fails, the log is read again, in a
thread, by the checked way in `segment/batch_file.py`.

Where a batch is damaged, all offsets up to the next intact batch are lost; nobody knows which of them had a
record. An unreadable sector is damage as well, if the disk can read other batches. If it reads nothing, the
disk is at fault, and the offsets may be readable later (`is_lasting`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from forebay.errors import KafkaError, StorageError
from forebay.storage.log.segment.batch_file import BatchFile, Stretch
from forebay.storage.log.segment.batch_parts import CorruptBatch, DamagedPart, WholeBatch
from forebay.storage.log.segment.segment import Segment
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.parts import FileRange


class Unreadable(NamedTuple):
    """Offsets that the disk cannot read, or not intact."""

    first: int
    last: int
    error: KafkaError
    is_lasting: bool
    """True if these bytes are at fault. Otherwise the disk reads nothing at all."""


def read_intact(
    stretches: Iterable[Stretch], offset: int, max_bytes: int, *, end: int
) -> LogSlice | Unreadable:
    """Intact batches from the one that holds `offset`, below `end`; or the unreadable offsets before them.

    Blocks; `stretches` are those of `Log.files_from`.
    """
    for stretch in stretches:
        segment = stretch.file
        if isinstance(segment, Segment):
            try:
                found = _read(segment, stretch, offset, max_bytes, end)
            except OSError as error:  # so many sectors are bad that the disk has failed
                return Unreadable(offset, end - 1, _storage_error(segment, error), is_lasting=False)
            if found is not None:
                return found
    # The last batch may name a later offset than its own, which nothing after it contradicts.
    nothing = StorageError(f"the log has no batch with an offset from {offset} to {end - 1}")
    return Unreadable(offset, end - 1, nothing, is_lasting=True)


def _read(
    segment: Segment, stretch: Stretch, offset: int, max_bytes: int, end: int
) -> LogSlice | Unreadable | None:
    start = stop = stretch.position
    next_offset: int | None = None
    for part in segment.read(stretch.position, end=stretch.end):
        if isinstance(part, DamagedPart):
            if next_offset is not None:
                break
            damaged = _unreadable(segment, part, offset, end)
            if damaged is not None:
                return damaged
        elif part.header.base_offset >= end:
            break
        elif part.header.last_offset >= offset:
            start = part.position if next_offset is None else start
            # The first one is given at any size.
            if next_offset is not None and part.position + part.header.size - start > max_bytes:
                break
            stop, next_offset = part.position + part.header.size, part.header.next_offset
    if next_offset is None:
        return None
    segment.verify(start, stop - start)
    part_of_file = FileRange(segment.lend(), start, stop - start)
    return LogSlice(part_of_file, next_offset, segment, more=next_offset < end)


def _unreadable(segment: Segment, part: DamagedPart, offset: int, end: int) -> Unreadable | None:
    """The lost offsets from `offset` on; None if all of them lie before it."""
    next_offset = min(segment.next_base if part.next_offset is None else part.next_offset, end)
    if next_offset <= offset:
        return None
    # From `offset` on, although the damaged header may name a later one: nothing vouches for it, and no
    # intact batch lies between.
    error = part.error
    if isinstance(error, CorruptBatch):
        return Unreadable(offset, next_offset - 1, error, is_lasting=True)
    return Unreadable(offset, next_offset - 1, _storage_error(segment, error), is_lasting(segment, part))


def is_lasting(file: BatchFile, part: DamagedPart) -> bool:
    """True if the disk can read other batches of the file, so that the bytes of this part are at fault."""
    return part.end < file.size or isinstance(next(file.read(), None), WholeBatch)


def _storage_error(segment: Segment, error: OSError) -> StorageError:
    return StorageError(f"cannot read {segment.file.path}: {error}")
