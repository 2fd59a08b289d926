"""A segment in an object store: its batches, and everything needed to serve them, in one object.

    batches     exactly the bytes of the local log: whole record batches v2 without gaps, `data_bytes` long
    index       see below
    footer      position of the index int64, its length int32, its CRC-32C uint32, the bytes "FOREBAY1"

All numbers are big-endian. The manifest repeats `data_bytes`, and the size of the object: so one ranged read
gets the index with the footer, and a second one the batches that are wanted. The index is

    version int16 (1)
    number of chunks int32, then for each: base offset, next offset, position int64 each, length int32,
        largest timestamp int64, CRC-32C uint32
    number of aborted transactions int32, then for each: producer id, first offset, last offset (that of its
        marker), last stable offset after it, int64 each
    number of leader epochs int32, then for each: epoch int32, start offset int64
    length of the producer snapshot int32, and the snapshot

Chunks are runs of whole batches that cover the data without gaps, in order: the unit in which batches are
read, checked and cached. Each is as large as the broker's `forebay.remote.chunk.bytes` at the time of
copying, but never less than one batch. The CRC of a chunk covers its bytes, also the offsets that the CRCs
of batches leave out.

The aborted transactions are all that have messages in the segment, also those whose marker lies in a later
one: only messages below the last stable offset are copied, so all outcomes are known, and a reader of
committed messages needs no other object. A message is aborted if its batch is transactional, has the
producer id of such an entry, and an offset from the first to the last of the entry. Entries are in the order
of their markers.

The leader epochs are those with messages in the segment, each with its first offset there, or before. The
producer snapshot is the state of the idempotent producers after the last message, in the format of the
broker's snapshot files; it is empty if the broker had none for this offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

import fastcrc

from forebay.errors import ProtocolError
from forebay.wire.batch import HEADER_SIZE, BatchHeader, crc32c, read_header
from forebay.wire.varint import Bytes

VERSION = 1
_VERSION = Struct(">h")
_COUNT = Struct(">i")
_CHUNK = Struct(">qqqiqI")
_ABORTED = Struct(">qqqq")
_EPOCH = Struct(">iq")
_FOOTER = Struct(">qiI8s")
_MAGIC = b"FOREBAY1"
FOOTER_SIZE = _FOOTER.size
_PIECE_BYTES = 256 * 1024
"""Small enough that putting them together does not keep other threads from the interpreter."""


class Chunk(NamedTuple):
    """A run of whole batches in a segment object."""

    base_offset: int
    next_offset: int
    position: int
    length: int
    max_timestamp: int
    """The largest of its batches; -1 if none has one."""
    crc: int


class AbortedSpan(NamedTuple):
    """An aborted transaction with messages in the segment."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SegmentIndex(NamedTuple):
    chunks: tuple[Chunk, ...]
    aborted: tuple[AbortedSpan, ...]
    epochs: tuple[tuple[int, int], ...]
    """(epoch, start offset), ascending."""
    producers: bytes
    """The snapshot of producers after the last message; empty if there is none."""


def encode_tail(index: SegmentIndex, data_bytes: int) -> bytes:
    """The index and the footer, which follow the batches."""
    parts = [_VERSION.pack(VERSION), _COUNT.pack(len(index.chunks))]
    parts += [_CHUNK.pack(*chunk) for chunk in index.chunks]
    parts.append(_COUNT.pack(len(index.aborted)))
    parts += [_ABORTED.pack(*entry) for entry in index.aborted]
    parts.append(_COUNT.pack(len(index.epochs)))
    parts += [_EPOCH.pack(*entry) for entry in index.epochs]
    parts += [_COUNT.pack(len(index.producers)), index.producers]
    body = b"".join(parts)
    return body + _FOOTER.pack(data_bytes, len(body), crc32c(body), _MAGIC)


def read_footer(footer: Bytes, object_bytes: int) -> int:
    """Where the batches end, from the last bytes of an object. Raises ProtocolError if these are damaged."""
    position, length, _, magic = _FOOTER.unpack(footer)
    if magic != _MAGIC or position < 0 or length < 0 or position + length + FOOTER_SIZE != object_bytes:
        raise ProtocolError("the footer of a segment is damaged")
    return int(position)


def decode_tail(tail: Bytes, data_bytes: int) -> SegmentIndex:
    """The index from everything in the object after its batches. Raises ProtocolError if it is damaged."""
    if len(tail) < FOOTER_SIZE:
        raise ProtocolError(f"the index of a segment is cut short: {len(tail)} bytes")
    position, length, crc, magic = _FOOTER.unpack_from(tail, len(tail) - FOOTER_SIZE)
    body = bytes(tail[: len(tail) - FOOTER_SIZE])
    if magic != _MAGIC or position != data_bytes or length != len(body):
        raise ProtocolError("the footer of a segment does not fit the manifest")
    if crc32c(body) != crc:
        raise ProtocolError("the index of a segment fails its CRC")
    try:
        return _decode(body)
    except StructError as error:
        raise ProtocolError(f"the index of a segment is malformed: {error}") from error


def _decode(body: bytes) -> SegmentIndex:
    (version,) = _VERSION.unpack_from(body)
    if version != VERSION:
        raise ProtocolError(f"the index of a segment has version {version}: a newer Forebay has written it")
    at = _VERSION.size
    chunks, at = _entries(_CHUNK, body, at)
    aborted, at = _entries(_ABORTED, body, at)
    epochs, at = _entries(_EPOCH, body, at)
    (length,) = _COUNT.unpack_from(body, at)
    producers = body[at + _COUNT.size :]
    if len(producers) != length:
        raise ProtocolError("the index of a segment is malformed: its end is not where it should be")
    return SegmentIndex(
        tuple(Chunk(*entry) for entry in chunks),
        tuple(AbortedSpan(*entry) for entry in aborted),
        tuple((epoch, start) for epoch, start in epochs),
        producers,
    )


def _entries(form: Struct, body: bytes, at: int) -> tuple[list[tuple[int, ...]], int]:
    (count,) = _COUNT.unpack_from(body, at)
    at += _COUNT.size
    end = at + count * form.size
    if count < 0 or end > len(body):
        raise ProtocolError("the index of a segment is malformed: a list is cut short")
    return list(form.iter_unpack(body[at:end])), end


def chunk_at(chunks: Sequence[Chunk], offset: int) -> int | None:
    """The number of the first chunk that ends beyond an offset; None if all end before."""
    low, high = 0, len(chunks)
    while low < high:
        middle = (low + high) // 2
        if chunks[middle].next_offset > offset:
            high = middle
        else:
            low = middle + 1
    return low if low < len(chunks) else None


def check_chunk(chunk: Chunk, data: Bytes) -> None:
    """Raises ProtocolError unless these are the bytes that were copied."""
    if len(data) != chunk.length:
        raise ProtocolError(f"a chunk has {len(data)} bytes instead of {chunk.length}")
    if crc32c(data) != chunk.crc:
        raise ProtocolError(f"the chunk from offset {chunk.base_offset} on fails its CRC")


class ChunkBuilder:
    """Divides batches, given in order, into chunks. Hands out their bytes in pieces of some size."""

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._parts: list[Bytes] = []
        self._parts_bytes = 0
        self._position = self._length = self._crc = 0
        """Of the chunk that is being made."""
        self._base_offset = self._next_offset = 0
        self._max_timestamp = -1
        self.chunks: list[Chunk] = []
        self.epochs: list[tuple[int, int]] = []

    def add(self, batch: Bytes, header: BatchHeader) -> bytes | None:
        """Take a batch; returns the next bytes of the object, if there are enough of them."""
        if self._length and self._length + len(batch) > self._chunk_bytes:
            self._close_chunk()
        if not self._length:
            self._base_offset = header.base_offset
        if not self.epochs or self.epochs[-1][0] < header.partition_leader_epoch:
            self.epochs.append((header.partition_leader_epoch, header.base_offset))
        self._crc = fastcrc.crc32.iscsi(batch, self._crc)
        self._length += len(batch)
        self._next_offset = header.next_offset
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        self._parts.append(batch)
        self._parts_bytes += len(batch)
        return self._take() if self._parts_bytes >= _PIECE_BYTES else None

    def finish(self) -> bytes | None:
        """Close the last chunk; returns the bytes that are left, None if there are none."""
        if self._length:
            self._close_chunk()
        return self._take() if self._parts else None

    def _close_chunk(self) -> None:
        self.chunks.append(
            Chunk(
                self._base_offset,
                self._next_offset,
                self._position,
                self._length,
                self._max_timestamp,
                self._crc,
            )
        )
        self._position += self._length
        self._length, self._crc, self._max_timestamp = 0, 0, -1

    def _take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts, self._parts_bytes = [], 0
        return data

    @property
    def data_bytes(self) -> int:
        return self._position + self._length


def batch_headers(data: Bytes) -> list[tuple[int, BatchHeader]]:
    """Position and header of each batch of a checked chunk. Raises ProtocolError at one that is not whole."""
    found = []
    at = 0
    while at < len(data):
        header = read_header(data, at)
        if header.size < HEADER_SIZE or at + header.size > len(data):
            raise ProtocolError(f"the batch at position {at} of a chunk is cut short")
        found.append((at, header))
        at += header.size
    return found
