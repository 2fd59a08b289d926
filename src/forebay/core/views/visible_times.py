"""Timestamps and offsets of the messages that a view shows, found in filtered batches.

ListOffsets of a view returns only messages that it shows, never one that it hides: otherwise a reader could
ask for one time after another and find out when each hidden message was written. Transaction markers are not
messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.core.views.filtering import Filtered
from forebay.wire.batch import BatchHeader, split
from forebay.wire.record_spans import payload_of, record_spans

TimestampOffset = tuple[int, int]


class TimeSearch(NamedTuple):
    """The progress of a search through a view."""

    timestamp: int | None
    """Find the first message that is not older; None for the message with the largest timestamp."""
    next_offset: int
    """Everything before it was examined."""
    best: TimestampOffset | None = None
    is_over: bool = False
    """True if nothing that follows can change the answer."""


def search_on(search: TimeSearch, filtered: Filtered, decompress_max_bytes: int) -> TimeSearch:
    """Continue the search with the next filtered part of the source. For a thread: it unpacks."""
    best = search.best
    for header, records in _batches(filtered.data, decompress_max_bytes):
        if search.timestamp is None:
            if best is None or header.max_timestamp > best[0]:
                best = _largest(records, search.next_offset, best)
        elif header.max_timestamp >= search.timestamp:
            for found in records:
                if found[0] >= search.timestamp and found[1] >= search.next_offset:
                    return search._replace(best=found, is_over=True)
    return search._replace(best=best, next_offset=filtered.next_offset)


def _largest(
    records: Iterator[TimestampOffset], first_offset: int, best: TimestampOffset | None
) -> TimestampOffset | None:
    for found in records:
        if found[1] >= first_offset and (best is None or found[0] > best[0]):
            best = found
    return best


def _batches(data: bytes, max_bytes: int) -> Iterator[tuple[BatchHeader, Iterator[TimestampOffset]]]:
    view = memoryview(data)
    for position, header in split(view):
        if not header.is_control and header.record_count:
            yield header, _records(view[position : position + header.size], header, max_bytes)


def _records(batch: memoryview, header: BatchHeader, max_bytes: int) -> Iterator[TimestampOffset]:
    append_time = header.max_timestamp if header.is_log_append_time else None
    for span in record_spans(payload_of(batch, header, max_bytes), header):
        timestamp = header.base_timestamp + span.timestamp_delta if append_time is None else append_time
        yield timestamp, header.base_offset + span.offset_delta
