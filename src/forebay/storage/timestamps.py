"""Offsets by time: the first record of at least a timestamp, and the record with the largest.

The time index says from which batch on to look; the batch that holds the answer is opened and its
records are walked, so the answer is exact. These calls read from the disk and decompress: they may
block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.errors import ProtocolError
from forebay.storage.segment import NO_TIMESTAMP, CorruptBatch, Segment
from forebay.wire.batch import records
from forebay.wire.records import Record

TimestampOffset = tuple[int, int]


def find_timestamp(segments: Iterable[Segment], start_offset: int, timestamp: int) -> TimestampOffset | None:
    """(timestamp, offset) of the first record from `start_offset` on that is not older than `timestamp`."""
    for segment in segments:
        if segment.largest_timestamp() >= timestamp:
            found = _find_in(segment, start_offset, timestamp)
            if found is not None:
                return found
    return None


def max_timestamp(segments: Iterable[Segment], start_offset: int) -> TimestampOffset | None:
    """(timestamp, offset) of the first record that carries the largest timestamp of the log."""
    nonempty = [segment for segment in segments if segment.largest_timestamp() > NO_TIMESTAMP]
    best: TimestampOffset | None = None
    # What the index promises may be gone, deleted with the front of the log or by compaction: then the next.
    for segment in sorted(nonempty, key=Segment.largest_timestamp, reverse=True):
        largest = segment.largest_timestamp()
        if best is not None and best[0] > largest:
            break
        found = _find_in(segment, start_offset, largest) or _largest_in(segment, start_offset)
        if found is not None and (best is None or (-found[0], found[1]) < (-best[0], best[1])):
            best = found
    return best


def _largest_in(segment: Segment, start_offset: int) -> TimestampOffset | None:
    best: TimestampOffset | None = None
    for position, batch, header in segment.batches():
        if header.last_offset >= start_offset and (best is None or header.max_timestamp > best[0]):
            for record in _records(batch, segment, position):
                if record.offset >= start_offset and (best is None or record.timestamp > best[0]):
                    best = record.timestamp, record.offset
    return best


def _find_in(segment: Segment, start_offset: int, timestamp: int) -> TimestampOffset | None:
    entry = segment.time_index.floor(timestamp)
    # Everything up to the entry's batch is older than the entry's timestamp, or is that batch.
    first_offset = max(start_offset, segment.base_offset + (entry[1] if entry else 0))
    first = segment.find(first_offset)
    if first is None:
        return None
    for position, batch, header in segment.batches(first.position):
        if header.max_timestamp >= timestamp:
            found = _first_record(batch, segment, position, start_offset, timestamp)
            if found is not None:
                return found
    return None


def _first_record(
    batch: memoryview, segment: Segment, position: int, start_offset: int, timestamp: int
) -> TimestampOffset | None:
    for record in _records(batch, segment, position):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return record.timestamp, record.offset
    return None


def _records(batch: memoryview, segment: Segment, position: int) -> Iterator[Record]:
    try:
        yield from records(batch)
    except ProtocolError as error:
        raise CorruptBatch(segment.file.path, position, str(error)) from error
