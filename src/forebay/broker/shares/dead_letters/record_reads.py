"""Reads single records of a log, in threads: batches are unpacked there, a limited amount at a time.

A damaged record is returned without a copy, so that one damaged batch does not block the records behind it. A
read error may pass, so it is raised; neighbours are still read. If only some sectors fail (`BadSector`), the
caller decides how long to wait; after that the record is returned without a copy, too.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import field
from functools import partial

from forebay.broker.tiers.missed_chunk import ChunkRange
from forebay.broker.worker_threads import WorkerThreads
from forebay.core.shares.partition.dead_letter_headers import NoCopy
from forebay.errors import ProtocolError, StorageError
from forebay.lazy import dataclass
from forebay.storage.log.intact_reads import is_lasting
from forebay.storage.log.log import Log
from forebay.storage.log.segment.batch_file import Stretch
from forebay.storage.log.segment.batch_parts import DamagedPart, WholeBatch
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.batch import records, split
from forebay.wire.records import Record


class BadSector(StorageError):
    """The disk does not return a wanted record, but returns others of the same file."""


Found = dict[int, Record | NoCopy]
"""Records by offset; NoCopy for a record that was deleted or cannot be read."""
ReadOld = Callable[[int], Awaitable[LogSlice | int]]
"""Finds batches before the start of the local log, from the one that holds an offset; or the offset below
which all were deleted."""


@dataclass(slots=True, eq=False)
class RecordsRead:
    """The wanted records that were found."""

    bytes_max: int
    overhead: int
    """The bytes of the limit that each record takes in addition to its contents."""
    found: Found = field(default_factory=dict)
    end: int = 0
    """A wanted record before this offset that was not found does not exist."""
    size: int = 0

    def take(self, offset: int, found: Record | NoCopy) -> bool:
        """True if there was room for it. The first record always fits."""
        size = self.overhead + (0 if isinstance(found, NoCopy) else _size(found))
        if self.found and self.size + size > self.bytes_max:
            self.end = offset
            return False
        self.found[offset] = found
        self.size += size
        self.end = offset + 1
        return True


async def read_records(
    log: Log,
    wanted: Collection[int],
    workers: WorkerThreads,
    *,
    bytes_max: int,
    overhead: int,
    read_old: ReadOld | None = None,
    passes_bad_sectors: bool = False,
) -> RecordsRead:
    """The first of the wanted records, at least one if there is any. Raises KafkaError; BadSector unless bad
    sectors are skipped."""
    read = RecordsRead(bytes_max, overhead)
    offsets = sorted(wanted)
    left = offsets
    while left and left[0] < log.start_offset:
        if not await _read_before(log, left, workers, read, read_old):
            return read
        left = left[bisect_left(left, read.end) :]
    left = left[: bisect_left(left, log.end_offset)]
    if left and not await _read_on(log, left, workers, read, passes_bad_sectors):
        return read
    read.end = offsets[-1] + 1
    return read


async def _read_before(
    log: Log, wanted: list[int], workers: WorkerThreads, read: RecordsRead, read_old: ReadOld | None
) -> bool:
    """Some of the records before the start of the local log: from the object store, or they were deleted.
    True if there was room for all that was found."""
    batches = log.start_offset if read_old is None else await read_old(wanted[0])
    if isinstance(batches, int):
        deleted = wanted[: bisect_left(wanted, batches)]
        return all(read.take(offset, NoCopy.DELETED) for offset in deleted)
    limit = log.config.decompress_max_bytes
    return await workers.run(partial(_collect_old, batches, wanted, limit, read))


def _collect_old(batches: LogSlice, wanted: list[int], output_max_bytes: int, read: RecordsRead) -> bool:
    """Runs in a thread. True if there was room for all that was found."""
    if isinstance(batches.range, ChunkRange):
        for whole in _whole_batches(batches.range):
            first, end = whole.header.base_offset, whole.header.next_offset
            here = wanted[bisect_left(wanted, first) : bisect_left(wanted, end)]
            found = _records(whole, dict.fromkeys(here, NoCopy.DAMAGED), output_max_bytes) if here else {}
            if not all(read.take(offset, each) for offset, each in found.items()):
                return False
    read.end = max(read.end, batches.next_offset, wanted[0] + 1)
    return True


def _whole_batches(part: ChunkRange) -> Iterator[WholeBatch]:
    try:
        data = memoryview(part.file.pread(part.length, part.position))
        for position, header in split(data):
            yield WholeBatch(position, data[position : position + header.size], header)
    except (OSError, ProtocolError) as error:
        raise StorageError(f"a cached chunk cannot be read: {error}") from error


async def _read_on(
    log: Log, wanted: list[int], workers: WorkerThreads, read: RecordsRead, passes_bad_sectors: bool
) -> bool:
    """True if there was room for all that was found."""
    limit = log.config.decompress_max_bytes
    for stretch in log.files_from(wanted[0]):
        collect = partial(_collect, stretch, wanted, limit, read, passes_bad_sectors=passes_bad_sectors)
        if not await workers.run(collect):
            return False
        if read.end > wanted[-1]:
            break
    return True


def _collect(
    stretch: Stretch,
    wanted: list[int],
    output_max_bytes: int,
    read: RecordsRead,
    *,
    passes_bad_sectors: bool,
) -> bool:
    """Runs in a thread. True if there was room for all that was found."""
    for part in stretch.read():
        if isinstance(part, DamagedPart):
            first, end = part.first_offset, part.next_offset
            end = wanted[-1] + 1 if end is None else end
        else:
            first, end = part.header.base_offset, part.header.next_offset
        if first > wanted[-1]:
            read.end = first
            break
        here = wanted[bisect_left(wanted, first) : bisect_left(wanted, end)]
        if here:
            if isinstance(part, DamagedPart) and part.unreadable is not None:
                _check_passed(stretch, part, part.unreadable, passes_bad_sectors)
            damaged: Found = dict.fromkeys(here, NoCopy.DAMAGED)
            found = damaged if isinstance(part, DamagedPart) else _records(part, damaged, output_max_bytes)
            if not all(read.take(offset, each) for offset, each in found.items()):
                return False
        read.end = max(read.end, end)
    return True


def _check_passed(stretch: Stretch, part: DamagedPart, error: OSError, passes_bad_sectors: bool) -> None:
    """Raises StorageError unless this unreadable part may be skipped."""
    why = f"cannot read {stretch.file.file.path}: {error}"
    if not is_lasting(stretch.file, part):
        raise StorageError(why)
    if not passes_bad_sectors:
        raise BadSector(why)


def _records(batch: WholeBatch, damaged: Found, output_max_bytes: int) -> Found:
    """The wanted records of the batch, in the order of their offsets.

    If its header is wrong about the offsets, its records are unknown: each is returned without a copy.
    """
    header, found = batch.header, Found()
    if header.is_control or not header.record_count:
        return found
    next_offset = header.base_offset
    try:
        for record in records(batch.data, output_max_bytes):
            if not next_offset <= record.offset <= header.last_offset:
                return damaged
            next_offset = record.offset + 1
            if record.offset in damaged:
                found[record.offset] = record
    except ProtocolError:
        return damaged
    return found


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(key.encode()) + len(value or b"") + 8 for key, value in record.headers)
