"""Reading single records of a log, in threads: batches are taken apart there, a limited amount at a time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

from forebay.broker.worker_threads import WorkerThreads
from forebay.errors import ProtocolError
from forebay.storage.log.batch_file import Stretch
from forebay.storage.log.log import Log
from forebay.wire.batch import crc_ok, records
from forebay.wire.records import Record


@dataclass(slots=True, eq=False)
class RecordsRead:
    """What was found of the wanted records."""

    found: dict[int, Record | None] = field(default_factory=dict)
    """By offset; None for what the log had and has not any more, or what cannot be read."""
    end: int = 0
    """Before this offset, what was not found does not exist."""
    size: int = 0


async def read_records(
    log: Log, wanted: Collection[int], workers: WorkerThreads, *, bytes_max: int, overhead: int
) -> RecordsRead:
    """The first of the wanted records, at least one if there is any. Raises StorageError.

    `overhead`: how many bytes of the limit a record takes besides what it holds.
    """
    read = RecordsRead()
    offsets = sorted(wanted)
    read.found = {offset: None for offset in offsets if offset < log.start_offset}
    first, last = max(offsets[0], log.start_offset), offsets[-1]
    if first <= last and first < log.end_offset:
        present = frozenset(offset for offset in offsets if offset >= first)
        for stretch in log.stretches(first):
            collect = partial(_collect, stretch, present, last, read, bytes_max, overhead)
            if await workers.run(collect):
                return read
    read.end = last + 1
    return read


def _collect(
    stretch: Stretch, wanted: frozenset[int], last: int, read: RecordsRead, bytes_max: int, overhead: int
) -> bool:
    """In a thread. Whether there is no more to be read, because of the limit or because all was found."""
    for batch, header in stretch.batches():
        if header.base_offset > last:
            break
        here = [o for o in range(header.base_offset, min(header.last_offset, last) + 1) if o in wanted]
        if not here or header.is_control or not header.record_count:
            continue
        taken = _records(batch, wanted)
        if taken is None:
            read.found |= dict.fromkeys(here)
            continue
        for record in taken:
            size = overhead + _size(record)
            if read.found and read.size + size > bytes_max:
                read.end = record.offset
                return True
            read.found[record.offset] = record
            read.size += size
    else:
        return False
    read.end = last + 1
    return True


def _records(batch: memoryview, wanted: frozenset[int]) -> list[Record] | None:
    """None if the batch is damaged, or lies about its records: clients cannot read it either."""
    if not crc_ok(batch, 0, len(batch)):
        return None
    try:
        return [record for record in records(batch) if record.offset in wanted]
    except ProtocolError:
        return None


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    return size + sum(len(key) + len(value or b"") + 8 for key, value in record.headers)
