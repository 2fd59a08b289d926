"""Records as ranges in the bytes of a batch, for compaction and views: found without parsing, kept unchanged.

A record states its offset and timestamp relative to its batch. So a batch that keeps its base offset and base
timestamp can lose records while the bytes of the others stay the same. Only when the base timestamp changes,
because it becomes the delete horizon, is that field of each record rewritten.

A batch may lie about its records: with a valid CRC, offsets can lie outside the batch and times outside 64
bits. Walking the spans detects that and raises ProtocolError.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from forebay.errors import ProtocolError
from forebay.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NOTED,
    TIMESTAMP_MAX,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
)
from forebay.wire.compression import compress, decompress
from forebay.wire.records import write_bytes
from forebay.wire.varint import Bytes, read_varint, write_varint

_ONE_BYTE: tuple[int | None, ...] = tuple((b >> 1) ^ -(b & 1) if b < 0x80 else None for b in range(256))
"""The value of a varint of one byte; None where more bytes follow."""

_SPANS_IN_MEMORY_MAX = 10_000

_new_span = tuple.__new__


class TimestampOutOfRange(ProtocolError):
    """A record's timestamp is negative, or beyond 64 bits."""


class RecordSpan(NamedTuple):
    start: int
    offset_at: int
    """The position of the offset delta: length, attributes and timestamp delta lie before it."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool
    headers_at: int
    """The position of the number of headers: the key and the value lie before it."""
    value_at: int
    """The start of the value, which ends at the headers."""


def payload_of(batch: Bytes, header: BatchHeader, max_output_bytes: int) -> bytes:
    """The records of a batch as bytes; a batch that compaction has emptied has none."""
    if not header.record_count:
        return b""
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE:], max_output_bytes)


def record_spans(payload: bytes, header: BatchHeader) -> Iterator[RecordSpan]:
    """The records that a batch claims to have, which must fill the payload. Headers are skipped unread.

    Offsets rise and stay within the batch, so a batch without gaps has its records at 0, 1, 2 ...
    """
    count, last_delta = header.record_count, header.last_offset_delta
    earliest, latest = NO_TIMESTAMP - header.base_timestamp, TIMESTAMP_MAX - header.base_timestamp
    start, before = 0, -1
    for _ in range(count):
        try:
            span = span_at(payload, start)
        except IndexError:
            raise ProtocolError("record runs past the end of its batch") from None
        _, _, start, timestamp_delta, offset_delta, _, _, _, _ = span
        if not (before < offset_delta <= last_delta and earliest <= timestamp_delta <= latest):
            check_place(header, before, offset_delta, timestamp_delta)
        before = offset_delta
        yield span
    if start != len(payload):
        raise ProtocolError(f"{len(payload) - start} bytes left over after the {count} records of a batch")


def check_place(header: BatchHeader, before: int, offset_delta: int, timestamp_delta: int) -> None:
    """Raise ProtocolError unless a record lies after the offset delta `before`, in its batch, with a valid
    timestamp."""
    if not before < offset_delta <= header.last_offset_delta:
        raise ProtocolError(
            f"record is at offset delta {offset_delta}, after {before}, in a batch that ends at "
            f"{header.last_offset_delta}"
        )
    timestamp = header.base_timestamp + timestamp_delta
    if not NO_TIMESTAMP <= timestamp <= TIMESTAMP_MAX:
        raise TimestampOutOfRange(f"record has the timestamp {timestamp}, which no record can have")


def readable_spans(payload: bytes, header: BatchHeader) -> Iterable[RecordSpan]:
    """Like `record_spans`, after all of them were found to be well-formed, in bounded memory."""
    if header.record_count <= _SPANS_IN_MEMORY_MAX:
        return list(record_spans(payload, header))
    for _ in record_spans(payload, header):
        pass
    return record_spans(payload, header)


def span_at(data: bytes, start: int) -> RecordSpan:
    """The record that begins there; IndexError where the data ends.

    Straight-line code, with the varints of one byte read in place: compaction calls it for every record.
    """
    length, position = read_varint(data, start)
    end = position + length
    if length < 0 or end > len(data):
        raise ProtocolError(f"record of {length} bytes does not fit in its batch")
    offset_at = position + 2  # past the record's attributes
    timestamp_delta = _ONE_BYTE[data[position + 1]]
    if timestamp_delta is None:
        timestamp_delta, offset_at = read_varint(data, position + 1, 64)
    position = offset_at + 1
    offset_delta = _ONE_BYTE[data[offset_at]]
    if offset_delta is None:
        offset_delta, position = read_varint(data, offset_at)
    key_length, position = _ONE_BYTE[data[position]], position + 1
    if key_length is None:
        key_length, position = read_varint(data, position - 1)
    key = None
    if key_length >= 0:
        key = data[position : position + key_length]
        position += key_length
    value_length, position = _ONE_BYTE[data[position]], position + 1
    if value_length is None:
        value_length, position = read_varint(data, position - 1)
    value_at, has_value = position, value_length >= 0
    if has_value:
        position += value_length
    if position >= end:
        raise ProtocolError("record's fields do not fit in its length")
    return _new_span(
        RecordSpan, (start, offset_at, end, timestamp_delta, offset_delta, key, has_value, position, value_at)
    )


def check_headers(payload: bytes, span: RecordSpan) -> None:
    """Raise ProtocolError unless the headers of a record are well-formed and end where it does."""
    try:
        end = _end_of_headers(payload, span.headers_at, span.end)
    except IndexError:
        raise ProtocolError("record runs past the end of its batch") from None
    if end != span.end:
        raise ProtocolError("record's length does not match its fields")


def _end_of_headers(data: bytes, position: int, end: int) -> int:
    count, position = read_varint(data, position)
    # A header takes at least two bytes, so a false count cannot cause a long loop.
    if not 0 <= count <= (end - position) // 2:
        raise ProtocolError(f"record cannot hold {count} headers")
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise ProtocolError("record header without a key")
        length, position = read_varint(data, position + length)
        position += max(length, 0)
        if position > end:
            raise ProtocolError("record's headers do not fit in its length")
    return position


def keep_records(
    header: BatchHeader, payload: bytes, kept: Sequence[RecordSpan], *, delete_horizon_ms: int | None
) -> bytearray:
    """The batch with only these of its records, at least one, at the same offsets and with the same times.

    `delete_horizon_ms` is set if the batch has none yet.
    """
    largest_delta = max(span.timestamp_delta for span in kept)
    if delete_horizon_ms is None or header.attributes & DELETE_HORIZON:
        return replace_records(header, [payload[span.start : span.end] for span in kept], largest_delta)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    records = _with_base_timestamp(payload, kept, delete_horizon_ms - base_timestamp)
    changed = _of_records(header, len(kept), largest_delta)._replace(
        attributes=attributes | DELETE_HORIZON, base_timestamp=delete_horizon_ms
    )
    return assemble(changed, compress(header.codec, records))


def replace_records(
    header: BatchHeader, records: Sequence[bytes], largest_timestamp_delta: int, level: int | None = None
) -> bytearray:
    """The batch with these records, at least one, instead of its own; they lie within its offsets."""
    changed = _of_records(header, len(records), largest_timestamp_delta)
    return assemble(changed, compress(header.codec, b"".join(records), level))


def _of_records(header: BatchHeader, count: int, largest_timestamp_delta: int) -> BatchHeader:
    if header.attributes & LOG_APPEND_TIME:
        return header._replace(record_count=count)
    max_timestamp = header.base_timestamp + largest_timestamp_delta
    return header._replace(record_count=count, max_timestamp=max_timestamp)


def with_value(payload: bytes, span: RecordSpan, value: bytes) -> bytes:
    """A record with another value: its offset, time, key and headers stay."""
    _, body_at = read_varint(payload, span.start)
    body = bytearray(payload[body_at : span.offset_at])
    write_varint(body, span.offset_delta)
    write_bytes(body, span.key)
    write_bytes(body, value)
    body += payload[span.headers_at : span.end]
    out = bytearray()
    write_varint(out, len(body))
    return bytes(out + body)


def _with_base_timestamp(payload: bytes, kept: Sequence[RecordSpan], later_ms: int) -> bytes:
    """The same records relative to a base timestamp that is later by this amount."""
    out = bytearray()
    for span in kept:
        head = bytearray(1)  # the record's attributes: no bit of them is in use
        write_varint(head, span.timestamp_delta - later_ms)
        write_varint(out, len(head) + span.end - span.offset_at)
        out += head
        out += payload[span.offset_at : span.end]
    return bytes(out)


def without_records(header: BatchHeader) -> bytearray:
    """A batch with only a header, which keeps the producer's last sequence number."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | NOTED)
    return assemble(header._replace(attributes=attributes, record_count=0), b"")


def placeholder(header: BatchHeader) -> bytearray:
    """A batch with only offsets, for a segment that has to keep its end."""
    return assemble(
        header._replace(
            attributes=header.attributes & LOG_APPEND_TIME,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=_sequence_without_producer(header),
            record_count=0,
        ),
        b"",
    )


def _sequence_without_producer(header: BatchHeader) -> int:
    """A batch without a producer keeps its sequence: it has a meaning in views (`core/views/copying.py`)."""
    return NO_SEQUENCE if header.producer_id >= 0 else header.base_sequence


def rest_of(header: BatchHeader, offset: int) -> bytearray:
    """A batch with only the offsets that another has from `offset` on."""
    return placeholder(
        header._replace(base_offset=offset, last_offset_delta=header.last_offset - offset),
    )


def widened(batch: Bytes, header: BatchHeader, emptied: BatchHeader) -> bytearray:
    """A batch that reaches to the end of a later one, with nothing between.

    It then belongs to no producer, because the sequence number of its last record would change.
    """
    return assemble(
        header._replace(
            last_offset_delta=emptied.last_offset - header.base_offset,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=_sequence_without_producer(emptied),
        ),
        bytes(batch[HEADER_SIZE : header.size]),
    )
