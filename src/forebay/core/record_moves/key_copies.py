"""Copies the records of a compacted partition into the one that takes its messages: selects and batches them.

A move names the offsets of its records, because a mover that repeats it may work on another replica, and each
replica compacts its log separately. If a move named a range, the repeat could find more or fewer records in
it, and would not be recognised as a duplicate. Some of the offsets may be gone: a later record of the same
partition has replaced theirs, and is copied as well. Their places in the batch stay empty, as after a
compaction. So a batch always takes as many sequence numbers as the move has offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.errors import ProtocolError
from forebay.wire.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    assemble,
)
from forebay.wire.compression import Codec, compress
from forebay.wire.records import Record, write_record
from forebay.wire.varint import read_varint, write_varint

_EPOCH = 0
_RECORD_BYTES = 32
"""The maximum size of a record without its key, its value and its headers."""


def pack_offsets(offsets: Sequence[int]) -> bytes:
    """Encode rising offsets as runs: the distance from the end of the previous run, and the length."""
    out = bytearray()
    end = position = 0
    while position < len(offsets):
        first = offsets[position]
        length = 1
        while position + length < len(offsets) and offsets[position + length] == first + length:
            length += 1
        write_varint(out, first - end)
        write_varint(out, length)
        end = first + length
        position += length
    return bytes(out)


def unpack_offsets(entries: bytes) -> list[int]:
    """Raises ProtocolError if the bytes are malformed, or the offsets do not rise."""
    offsets: list[int] = []
    end = position = 0
    try:
        while position < len(entries):
            gap, position = read_varint(entries, position, 64)
            length, position = read_varint(entries, position, 64)
            if gap < 0 or length < 1:
                raise ProtocolError("the offsets of a copy do not rise")
            offsets += range(end + gap, end + gap + length)
            end += gap + length
    except IndexError:
        raise ProtocolError("the offsets of a copy are cut off") from None
    if not offsets:
        raise ProtocolError("a copy of nothing")
    return offsets


def placed_records(offsets: Sequence[int], found: Mapping[int, Record]) -> list[Record]:
    """The remaining records of a move, each at its place in the batch."""
    return [found[offset]._replace(offset=place) for place, offset in enumerate(offsets) if offset in found]


def copied_batch(
    records: Sequence[Record], places: int, *, producer_id: int, base_sequence: int, codec: int
) -> bytearray:
    """A batch with this many places, some of which may be empty; all of them, if no record is left."""
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    payload = bytearray()
    for record in records:
        write_record(payload, record, 0, base_timestamp)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=Codec.of(codec) if records else Codec.NONE,
        last_offset_delta=places - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max((record.timestamp for record in records), default=NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=_EPOCH,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(codec, payload) if records else b"")


def size_of(record: Record) -> int:
    size = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(2 * len(key) + len(value or b"") + 8 for key, value in record.headers)
