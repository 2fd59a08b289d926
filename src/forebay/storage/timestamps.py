"""Offsets by time: the first record of at least a timestamp, and the record with the largest.

The time index says from which batch on to look; the batch that holds the answer is opened and its
records are walked, so the answer is exact. These calls read from the disk and decompress: they may
block. A batch whose records make no sense is passed over (see unreadable.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.errors import ProtocolError
from forebay.storage.segment import NO_TIMESTAMP, Segment
from forebay.storage.unreadable import UnreadableBatches
from forebay.wire.batch import BatchHeader
from forebay.wire.compression import MAX_OUTPUT_BYTES
from forebay.wire.record_spans import payload_of, readable_spans

TimestampOffset = tuple[int, int]


class TimestampSearch:
    """One look-up in the segments of a log, from an offset on."""

    def __init__(self, segments: Iterable[Segment], start_offset: int, unreadable: UnreadableBatches) -> None:
        self._segments = segments
        self._start_offset = start_offset
        self._unreadable = unreadable

    def first_from(self, timestamp: int) -> TimestampOffset | None:
        """(timestamp, offset) of the first record that is not older than `timestamp`."""
        for segment in self._segments:
            if segment.largest_timestamp() >= timestamp:
                found = self._first_in(segment, timestamp)
                if found is not None:
                    return found
        return None

    def largest(self) -> TimestampOffset | None:
        """(timestamp, offset) of the first record that carries the largest timestamp."""
        nonempty = [segment for segment in self._segments if segment.largest_timestamp() > NO_TIMESTAMP]
        best: TimestampOffset | None = None
        # What the index promises may be gone, deleted with the front of the log or by compaction: then the
        # next.
        for segment in sorted(nonempty, key=Segment.largest_timestamp, reverse=True):
            largest = segment.largest_timestamp()
            if best is not None and best[0] > largest:
                break
            found = self._first_in(segment, largest) or self._largest_in(segment)
            if found is not None and (best is None or (-found[0], found[1]) < (-best[0], best[1])):
                best = found
        return best

    def _largest_in(self, segment: Segment) -> TimestampOffset | None:
        best: TimestampOffset | None = None
        for _, batch, header in segment.batches():
            if header.last_offset >= self._start_offset and (best is None or header.max_timestamp > best[0]):
                for timestamp, offset in self._records(batch, header):
                    if offset >= self._start_offset and (best is None or timestamp > best[0]):
                        best = timestamp, offset
        return best

    def _first_in(self, segment: Segment, timestamp: int) -> TimestampOffset | None:
        entry = segment.time_index.floor(timestamp)
        # Everything up to the entry's batch is older than the entry's timestamp, or is that batch.
        first_offset = max(self._start_offset, segment.base_offset + (entry[1] if entry else 0))
        first = segment.find(first_offset)
        if first is None:
            return None
        for _, batch, header in segment.batches(first.position):
            if header.max_timestamp >= timestamp:
                for found, offset in self._records(batch, header):
                    if found >= timestamp and offset >= self._start_offset:
                        return found, offset
        return None

    def _records(self, batch: memoryview, header: BatchHeader) -> Iterator[TimestampOffset]:
        """Time and offset of every record of a batch; none if it cannot be read."""
        try:
            spans = readable_spans(payload_of(batch, header, MAX_OUTPUT_BYTES), header)
        except ProtocolError as error:
            self._unreadable.pass_over(header.base_offset, str(error))
            return
        append_time = header.max_timestamp if header.is_log_append_time else None
        for span in spans:
            timestamp = header.base_timestamp + span.timestamp_delta if append_time is None else append_time
            yield timestamp, header.base_offset + span.offset_delta
