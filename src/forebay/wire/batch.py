"""Record batch v2: the unit that is produced, stored and fetched, always in the same format.

A batch is a header of 61 bytes and a payload of records, compressed or not. The CRC covers everything from
the attributes on, so the broker can set the two fields it owns (base offset and partition leader epoch) in
place without touching the checksum, and needs nothing but the header to store and serve a batch. Buffers
of batches are walked by hopping from header to header.

     0 base_offset      8 batch_length    12 partition_leader_epoch   16 magic   17 crc
    21 attributes      23 last_offset_delta   27 base_timestamp       35 max_timestamp
    43 producer_id     51 producer_epoch      53 base_sequence        57 record_count   61 records
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import fastcrc

from forebay.errors import ProtocolError
from forebay.wire.compression import MAX_OUTPUT_BYTES, Codec, compress, decompress
from forebay.wire.records import Record, parse_records, write_record
from forebay.wire.varint import Bytes

HEADER = Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
LENGTH_PREFIX = 12
"""Bytes of a batch that its batch_length does not count."""
CRC_START = 21
"""The first byte that the CRC covers."""
MAGIC = 2

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
TIMESTAMP_MAX = 2**63 - 1
NO_LEADER_EPOCH = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""Set by compaction: the base timestamp says when tombstones may be deleted."""
NOTED = 0x80
"""The batch was appended together with the delay note before it (state/delay_notes.py). Clients ignore it."""

SEQUENCE_MASK = 0x7FFF_FFFF
"""Sequence numbers go from 0 to 2**31-1 and wrap around to 0."""

crc32c: Callable[[Bytes], int] = fastcrc.crc32.iscsi

_CRC = Struct(">I")
_ATTRIBUTES_TO_MAX_TIMESTAMP = Struct(">hiqq")
ATTRIBUTES_LOW_AT = 22
"""The byte of a batch that has the flags."""
_PRODUCER_ID_AT = 43
_PRODUCER_ID = Struct(">q")


_MARKER_KEY = Struct(">hh")
_MARKER_VALUE = Struct(">hi")
_MARKER_VERSION = 0


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_PREFIX

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MASK

    def is_behind(self, producer_epoch: int, sequence: int) -> bool:
        """True if it comes behind the record with this number of its producer, in the same epoch."""
        return self.producer_epoch == producer_epoch and comes_after(self.base_sequence, sequence)

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def comes_after(sequence: int, other: int) -> bool:
    """True if a sequence number is one of the half that follow the other: they wrap around."""
    return 0 < (sequence - other) & SEQUENCE_MASK <= SEQUENCE_MASK // 2


def read_header(buf: Bytes, position: int = 0) -> BatchHeader:
    """The header at a position. Does not check the CRC, nor that the batch is complete."""
    if position < 0 or len(buf) - position < HEADER_SIZE:
        raise ProtocolError(f"a batch header takes {HEADER_SIZE} bytes, {len(buf) - position} are left")
    # Like BatchHeader._make, which counts the fields as well. On the hot path.
    return tuple.__new__(BatchHeader, HEADER.unpack_from(buf, position))


def is_transactional(batch: Bytes | None) -> bool:
    """Like the header's property, without a header. False if it is too short to be a batch."""
    if batch is None or len(batch) < HEADER_SIZE:
        return False
    return bool(batch[ATTRIBUTES_LOW_AT] & TRANSACTIONAL)


def crc_ok(buf: Bytes, position: int, size: int) -> bool:
    """True if the CRC of the batch of this size at this position is correct."""
    if size < HEADER_SIZE or position + size > len(buf):
        return False
    (crc,) = _CRC.unpack_from(buf, position + CRC_START - _CRC.size)
    covered = memoryview(buf)[position + CRC_START : position + size]
    return bool(crc == crc32c(covered))


def patch_append_time(buf: bytearray | memoryview, position: int, now_ms: int) -> None:
    """Give every record of the batch the broker's time, in place."""
    header = read_header(buf, position)
    _ATTRIBUTES_TO_MAX_TIMESTAMP.pack_into(
        buf,
        position + CRC_START,
        header.attributes | LOG_APPEND_TIME,
        header.last_offset_delta,
        header.base_timestamp,
        now_ms,
    )
    _patch_crc(buf, position, header.size)


def _patch_crc(buf: bytearray | memoryview, position: int, size: int) -> None:
    covered = memoryview(buf)[position + CRC_START : position + size]
    _CRC.pack_into(buf, position + CRC_START - _CRC.size, crc32c(covered))


def patch_producer_id(batch: bytearray | memoryview, producer_id: int) -> None:
    """Give a batch another producer, in place."""
    _PRODUCER_ID.pack_into(batch, _PRODUCER_ID_AT, producer_id)
    _patch_crc(batch, 0, len(batch))


def split(buf: Bytes) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch in a buffer that must hold whole batches only. Checks no CRC."""
    batches: list[tuple[int, BatchHeader]] = []
    position = 0
    while position < len(buf):
        header = read_header(buf, position)
        if header.batch_length < HEADER_SIZE - LENGTH_PREFIX or position + header.size > len(buf):
            raise ProtocolError(
                f"batch at {position} claims {header.size} bytes, {len(buf) - position} are left"
            )
        batches.append((position, header))
        position += header.size
    return batches


def checked_batches(buf: memoryview) -> Iterator[tuple[memoryview, BatchHeader]]:
    """The batches of a buffer, each checked against its CRC before its header is trusted.

    Raises ProtocolError at the first that is incomplete or damaged.
    """
    position = 0
    while position < len(buf):
        header = read_header(buf, position)
        if header.magic != MAGIC:
            raise ProtocolError(f"record batch has magic {header.magic}, only {MAGIC} is known")
        if not crc_ok(buf, position, header.size):
            raise ProtocolError(f"the batch at offset {header.base_offset} does not match its checksum")
        yield buf[position : position + header.size], header
        position += header.size


def whole_batch(batch: Bytes) -> BatchHeader:
    """The header of a buffer that must be exactly one batch of the known format."""
    header = read_header(batch)
    if header.magic != MAGIC:
        raise ProtocolError(f"record batch has magic {header.magic}, only {MAGIC} is known")
    if header.size != len(batch):
        raise ProtocolError(f"batch claims {header.size} bytes and has {len(batch)}")
    return header


def records(batch: Bytes, max_output_bytes: int = MAX_OUTPUT_BYTES) -> Iterator[Record]:
    """The records of one batch, which was checked against its CRC (`checked_batches`, `BatchFile.read`)."""
    header = whole_batch(batch)
    payload = decompress(header.codec, memoryview(batch)[HEADER_SIZE:], max_output_bytes)
    found = parse_records(payload, header.record_count, header.base_offset, header.base_timestamp)
    if header.is_log_append_time:
        return (record._replace(timestamp=header.max_timestamp) for record in found)
    return found


def build_batch(
    batch: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    attributes: int = 0,
) -> bytearray:
    """One batch of at least one record, at offsets rising from base_offset; gaps between them are legal."""
    base_timestamp = batch[0].timestamp
    payload = bytearray()
    for record in batch:
        write_record(payload, record, base_offset, base_timestamp)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=partition_leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes & ~CODEC_MASK | Codec.of(codec),
        last_offset_delta=batch[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in batch),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(batch),
    )
    return assemble(header, compress(codec, payload))


class EndTxnMarker(NamedTuple):
    """The end of a producer's transaction: a control batch of one record."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


def build_marker(
    marker: EndTxnMarker,
    *,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    record = Record(
        offset=base_offset,
        timestamp=timestamp,
        key=_MARKER_KEY.pack(_MARKER_VERSION, marker.commit),
        value=_MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def read_marker(batch: Bytes) -> EndTxnMarker | None:
    """The marker in a control batch; None for a control record of some other type."""
    header = whole_batch(batch)
    record = next(iter(records(batch)), None)
    if not header.is_control or record is None or record.key is None or len(record.key) < _MARKER_KEY.size:
        raise ProtocolError("not a control batch")
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise ProtocolError("transaction marker is cut short")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return EndTxnMarker(header.producer_id, header.producer_epoch, kind == 1, coordinator_epoch)


def assemble(header: BatchHeader, payload: bytes) -> bytearray:
    """A batch made of a header, whose length and CRC are set here, and records compressed as it says."""
    size = HEADER_SIZE + len(payload)
    made = bytearray(HEADER.pack(*header._replace(batch_length=size - LENGTH_PREFIX)))
    made += payload
    _patch_crc(made, 0, size)
    return made
