"""Finds offsets by time: the first record of at least a timestamp, and the record with the largest.

The time index says from which batch on to look; the batches that may hold the answer are opened and their
records are walked, so the answer is exact. That reads from the disk and decompresses, a whole segment in the
worst case, so it happens in a thread, while the log stays in use. The two sides are kept apart: a search is a
generator that runs in the log's owner, which alone uses the indexes; it yields `Walk`s, each of which reads a
stretch of one segment's file and touches nothing else, and is sent what the walk has found. A search caches
what it learns about a segment without an answer (`Segment.older`, `.largest`) for the next one.

Damage is skipped, and so is a batch with malformed records (see unreadable_batches.py): consumers cannot read
it. A batch that unpacks to more than is allowed counts by its header, as one record with the largest time and
the first offset. In a search for messages that are due (`messages_only`) both count by their headers, because
a skipped batch would be shown at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from forebay.errors import ProtocolError
from forebay.storage.log.segment.batch_parts import DamagedPart
from forebay.storage.log.segment.segment import NO_TIMESTAMP, Segment
from forebay.storage.log.unreadable_batches import UnreadableBatches
from forebay.wire.batch import BatchHeader
from forebay.wire.compression import OutputTooLarge
from forebay.wire.record_spans import payload_of, readable_spans

TimestampOffset: TypeAlias = tuple[int, int]


class Walk(NamedTuple):
    """Walks from batch to batch in a range of a segment. `run` blocks; any thread."""

    segment: Segment
    position: int
    end: int
    start_offset: int
    unreadable: UnreadableBatches
    decompress_max_bytes: int
    first_from: int | None
    """Find the first record that is not older; None for the record with the largest timestamp."""
    best: TimestampOffset | None = None
    """The largest before this range."""
    messages_only: bool = False
    """Skip control batches, and count malformed batches by their headers."""

    def run(self, pace: Callable[[int], None] = lambda _: None) -> TimestampOffset | None:
        """`pace` is called with the size of every batch; it may wait, or raise to end the walk."""
        best = self.best
        for part in self.segment.read(self.position, end=self.end):
            if isinstance(part, DamagedPart):
                if part.unreadable is not None:
                    raise part.unreadable
                self.unreadable.pass_over(max(part.first_offset, self.start_offset), part.why)
                continue
            _, batch, header = part
            pace(header.size)
            if header.last_offset < self.start_offset or (self.messages_only and header.is_control):
                continue
            if self.first_from is not None:
                found = self._first(batch, header, self.first_from)
                if found is not None:
                    return found
            else:
                best = self._larger(batch, header, best)
        return best

    def _first(self, batch: memoryview, header: BatchHeader, timestamp: int) -> TimestampOffset | None:
        if header.max_timestamp >= timestamp:
            for found in self._records(batch, header):
                if found[0] >= timestamp and found[1] >= self.start_offset:
                    return found
        return None

    def _larger(
        self, batch: memoryview, header: BatchHeader, best: TimestampOffset | None
    ) -> TimestampOffset | None:
        if best is None or header.max_timestamp > best[0]:
            for found in self._records(batch, header):
                if found[1] >= self.start_offset and (best is None or found[0] > best[0]):
                    best = found
        return best

    def _records(self, batch: memoryview, header: BatchHeader) -> Iterator[TimestampOffset]:
        """Time and offset of every record of a batch."""
        try:
            spans = readable_spans(payload_of(batch, header, self.decompress_max_bytes), header)
        except ProtocolError as error:
            self.unreadable.pass_over(header.base_offset, str(error))
            if self.messages_only or isinstance(error, OutputTooLarge):
                yield header.max_timestamp, max(header.base_offset, self.start_offset)
            return
        append_time = header.max_timestamp if header.is_log_append_time else None
        for span in spans:
            timestamp = header.base_timestamp + span.timestamp_delta if append_time is None else append_time
            yield timestamp, header.base_offset + span.offset_delta


Search: TypeAlias = Generator[Walk, TimestampOffset | None, TimestampOffset | None]


class TimestampSearch:
    """A look-up in segments, as they are now, from an offset on."""

    def __init__(
        self,
        segments: Sequence[Segment],
        start_offset: int,
        unreadable: UnreadableBatches,
        decompress_max_bytes: int,
        *,
        messages_only: bool = False,
    ) -> None:
        """`messages_only`: a search from any offset that skips control batches."""
        self._segments = segments
        self._start_offset = start_offset
        self._unreadable = unreadable
        self._decompress_max_bytes = decompress_max_bytes
        self._messages_only = messages_only

    def first_from(self, timestamp: int) -> Search:
        """(timestamp, offset) of the first record that is not older than `timestamp`."""
        for segment in self._segments:
            if segment.largest_timestamp() >= timestamp and segment.next_base > self._start_offset:
                found = yield from self._first_in(segment, timestamp)
                if found is not None:
                    return found
        return None

    def largest(self) -> Search:
        """(timestamp, offset) of the first record that carries the largest timestamp."""
        nonempty = [segment for segment in self._segments if segment.largest_timestamp() > NO_TIMESTAMP]
        best: TimestampOffset | None = None
        for segment in sorted(nonempty, key=Segment.largest_timestamp, reverse=True):
            claimed = segment.largest_timestamp()
            if best is not None and best[0] > claimed:
                break
            # The record that the index promises may be gone, deleted with the front of the log or by
            # compaction.
            found = yield from self._first_in(segment, claimed)
            if found is None:
                found = yield from self._largest_in(segment)
            if found is not None and (best is None or (-found[0], found[1]) < (-best[0], best[1])):
                best = found
        return best

    def _first_in(self, segment: Segment, timestamp: int) -> Search:
        older_to, than = segment.older
        end = segment.size
        if than <= timestamp and older_to == end:
            return None
        position = max(older_to if than <= timestamp else 0, self._begin(segment, timestamp))
        if position < end:
            found = yield self._walk(segment, position, end, timestamp)
            if found is not None:
                return found
        if not self._messages_only:
            segment.older = end, timestamp
        return None

    def _begin(self, segment: Segment, timestamp: int) -> int:
        """The position to begin at: everything before is older, or lies before the start."""
        entry = segment.time_index.floor(timestamp)
        # Everything up to the entry's batch is older than the entry's timestamp, or is that batch.
        first_offset = segment.base_offset + (entry[1] if entry else 0)
        return segment.position_before(max(self._start_offset, first_offset))

    def _largest_in(self, segment: Segment) -> Search:
        position, best = segment.largest or (0, None)
        if best is not None and best[1] < self._start_offset:
            position, best = 0, None  # it has been deleted meanwhile
        end = segment.size
        position = max(position, segment.position_before(self._start_offset))
        if position < end:
            best = yield self._walk(segment, position, end, None)._replace(best=best)
        segment.largest = end, best
        segment.older = end, NO_TIMESTAMP if best is None else best[0] + 1
        return best

    def _walk(self, segment: Segment, position: int, end: int, first_from: int | None) -> Walk:
        return Walk(
            segment,
            position,
            end,
            self._start_offset,
            self._unreadable,
            self._decompress_max_bytes,
            first_from,
            messages_only=self._messages_only,
        )
