"""Reading single records of a log, in threads: batches are taken apart there, a limited amount at a time.

What is damaged is found without a copy, so that one damaged batch does not stop what lies behind it. What the
disk does not give (an error of its own) may be had later, and is an error here.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from forebay.broker.worker_threads import WorkerThreads
from forebay.core.shares.partition.dead_letter_headers import NoCopy
from forebay.errors import ProtocolError
from forebay.storage.log.log import Log
from forebay.storage.log.segment.batch_file import CorruptBatch, Stretch
from forebay.wire.batch import BatchHeader, crc_ok, records
from forebay.wire.records import Record


@dataclass(slots=True, eq=False)
class RecordsRead:
    """What was found of the wanted records."""

    bytes_max: int
    overhead: int
    """How many bytes of the limit a record takes besides what it holds."""
    found: dict[int, Record | NoCopy] = field(default_factory=dict)
    """By offset; NoCopy for what the log had and has not any more, or what cannot be read."""
    end: int = 0
    """Before this offset, what was not found does not exist."""
    size: int = 0

    def take(self, offset: int, found: Record | NoCopy) -> bool:
        """Whether there was room for it. The first always finds some."""
        size = self.overhead + (0 if isinstance(found, NoCopy) else _size(found))
        if self.found and self.size + size > self.bytes_max:
            self.end = offset
            return False
        self.found[offset] = found
        self.size += size
        self.end = offset + 1
        return True


async def read_records(
    log: Log, wanted: Collection[int], workers: WorkerThreads, *, bytes_max: int, overhead: int
) -> RecordsRead:
    """The first of the wanted records, at least one if there is any. Raises StorageError."""
    read = RecordsRead(bytes_max, overhead)
    offsets = sorted(wanted)
    for offset in offsets[: bisect_left(offsets, log.start_offset)]:
        if not read.take(offset, NoCopy.DELETED):
            return read
    left = offsets[bisect_left(offsets, log.start_offset) : bisect_left(offsets, log.end_offset)]
    while left:
        try:
            if not await _read_on(log, left, workers, read):
                return read
            break
        except CorruptBatch:
            left = left[bisect_left(left, read.end) :]
            if left and not read.take(left.pop(0), NoCopy.DAMAGED):
                return read
    read.end = offsets[-1] + 1
    return read


async def _read_on(log: Log, wanted: list[int], workers: WorkerThreads, read: RecordsRead) -> bool:
    """Whether there was room for all that was found."""
    for stretch in log.stretches(wanted[0]):
        if not await workers.run(partial(_collect, stretch, wanted, read)):
            return False
        if read.end > wanted[-1]:
            break
    return True


def _collect(stretch: Stretch, wanted: list[int], read: RecordsRead) -> bool:
    """In a thread. Whether there was room for what was found here."""
    for batch, header in stretch.batches():
        if header.base_offset > wanted[-1]:
            read.end = header.base_offset
            break
        here = wanted[bisect_left(wanted, header.base_offset) : bisect_right(wanted, header.last_offset)]
        if here:
            for offset, found in _records(batch, header, here).items():
                if not read.take(offset, found):
                    return False
        read.end = header.next_offset
    return True


def _records(batch: memoryview, header: BatchHeader, wanted: Sequence[int]) -> dict[int, Record | NoCopy]:
    """The wanted records that the batch has, in the order of their offsets.

    If it is damaged, or lies about the offsets of its records, nobody knows which it has: each is found, and
    none can be copied.
    """
    damaged: dict[int, Record | NoCopy] = dict.fromkeys(wanted, NoCopy.DAMAGED)
    if not crc_ok(batch, 0, len(batch)):
        return damaged
    found: dict[int, Record | NoCopy] = {}
    if header.is_control or not header.record_count:
        return found
    next_offset = header.base_offset
    try:
        for record in records(batch):
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
