"""Records as places in the bytes of a batch, for compaction: found without being taken apart, kept as
they are.

A record states its offset and timestamp relative to its batch. So a batch that keeps its base offset and
base timestamp can lose records while the bytes of the others stay what they are. Only when the base
timestamp changes, because it becomes the delete horizon, is the one field of each record written anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    TRANSACTIONAL,
    BatchHeader,
    assemble,
)
from forebay.wire.compression import compress, decompress
from forebay.wire.varint import Bytes, read_varint, write_varint

_ONE_BYTE: tuple[int | None, ...] = tuple((b >> 1) ^ -(b & 1) if b < 0x80 else None for b in range(256))
"""What a varint of one byte says; None where more bytes follow."""

_new_span = tuple.__new__


class RecordSpan(NamedTuple):
    start: int
    offset_at: int
    """Where the offset delta begins: length, attributes and timestamp delta lie before it."""
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


def payload_of(batch: Bytes, header: BatchHeader, max_output_bytes: int) -> bytes:
    """The records of a batch as bytes; a batch that compaction has emptied has none."""
    if not header.record_count:
        return b""
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE:], max_output_bytes)


def record_spans(payload: bytes, count: int) -> Iterator[RecordSpan]:
    """Exactly `count` records, which must fill the payload exactly. Headers are passed over unread."""
    start = 0
    for _ in range(count):
        try:
            span = _span(payload, start)
        except IndexError:
            raise ProtocolError("record runs past the end of its batch") from None
        yield span
        start = span.end
    if start != len(payload):
        raise ProtocolError(f"{len(payload) - start} bytes left over after the {count} records of a batch")


def _span(data: bytes, start: int) -> RecordSpan:
    """Straight-line, with the varints of one byte read in place: compaction comes here for every record."""
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
    has_value = value_length >= 0
    if position + (value_length if has_value else 0) > end:
        raise ProtocolError("record's fields do not fit in its length")
    return _new_span(RecordSpan, (start, offset_at, end, timestamp_delta, offset_delta, key, has_value))


def keep_records(
    header: BatchHeader, payload: bytes, kept: Sequence[RecordSpan], *, delete_horizon_ms: int | None
) -> bytearray:
    """The batch with only these of its records, at least one, at the same offsets and with the same times.

    `delete_horizon_ms` is set if the batch has none yet.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    changed = header._replace(record_count=len(kept))
    if not attributes & LOG_APPEND_TIME:
        largest_delta = max(span.timestamp_delta for span in kept)
        changed = changed._replace(max_timestamp=base_timestamp + largest_delta)
    if delete_horizon_ms is None or attributes & DELETE_HORIZON:
        records = b"".join([payload[span.start : span.end] for span in kept])
    else:
        records = _with_base_timestamp(payload, kept, delete_horizon_ms - base_timestamp)
        changed = changed._replace(attributes=attributes | DELETE_HORIZON, base_timestamp=delete_horizon_ms)
    return assemble(changed, compress(header.codec, records))


def _with_base_timestamp(payload: bytes, kept: Sequence[RecordSpan], later_ms: int) -> bytes:
    """The same records relative to a base timestamp that lies so much later."""
    out = bytearray()
    for span in kept:
        head = bytearray(1)  # the record's attributes: no bit of them is in use
        write_varint(head, span.timestamp_delta - later_ms)
        write_varint(out, len(head) + span.end - span.offset_at)
        out += head
        out += payload[span.offset_at : span.end]
    return bytes(out)


def without_records(header: BatchHeader) -> bytearray:
    """A batch of nothing but a header, which tells what its producer sent last."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return assemble(header._replace(attributes=attributes, record_count=0), b"")


def placeholder(header: BatchHeader) -> bytearray:
    """A batch of nothing but its offsets, for a segment that has to end where it did."""
    return assemble(
        header._replace(
            attributes=header.attributes & LOG_APPEND_TIME,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        ),
        b"",
    )
