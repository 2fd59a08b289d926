"""Which batches of a fetched piece of a log are to be decoded, judged by their headers alone.

Passed over are batches outside of the wanted offsets, control batches, and, for readers of committed
messages, those of aborted transactions. A broker lists the aborted transactions that touch the piece; a
producer's batches belong to one from its first offset up to the producer's next marker. The list is complete
for each piece, so nothing is remembered from one fetch to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.aborted_batches import AbortedBatches
from forebay.wire.batch import CODEC_MASK, HEADER_SIZE, LENGTH_PREFIX, MAGIC, crc_ok
from forebay.wire.batch import HEADER as HEADER_FORMAT
from forebay.wire.compression import decompress
from forebay.wire.messages.fetch import AbortedTransaction

CHUNK_BYTES = 4 << 20
"""How much is decoded at a time: enough that the work is done by numpy, little enough for a small memory."""

_BEGINNING = Struct(">qiib")
"""Base offset, length, leader epoch and magic: what comes before the checksum of a batch."""
_BEGINNING_BYTES = _BEGINNING.size


class Batch(NamedTuple):
    """The place of a batch's records, and what they are relative to."""

    start: int
    end: int
    base_offset: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    record_count: int
    last_offset: int = -1
    corrupt: bool = False
    """Its checksum is wrong, so that it must not be decoded."""

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


class Chunk(NamedTuple):
    """Bytes without compression, and the batches whose records lie in them."""

    data: bytes | memoryview
    batches: Sequence[Batch]


class Piece(NamedTuple):
    batches: list[Batch]
    start: int
    """The offset asked for; the first batch may begin before it."""
    next_offset: int
    """Where to fetch next; the offset asked for when there was not one whole batch from there on."""
    is_end_unknown: bool = False
    """The last batch has a wrong checksum, and nothing says where it ends. It is left out."""


def select(
    data: memoryview,
    *,
    start: int,
    end: int,
    aborted: Iterable[AbortedTransaction] = (),
    check_crcs: bool = True,
    keep_corrupt: bool = False,
    behind: int | None = None,
) -> Piece:
    """The batches with records at offsets from start up to, not including, end.

    `keep_corrupt`: batches with a wrong checksum are among them, marked, instead of an error. Nothing that
    their headers claim makes others be passed over: they end where the next batch begins, or at `behind`,
    the offset behind all of the data, where that is known.
    """
    transactions = AbortedBatches(aborted)
    chosen: list[Batch] = []
    corrupt: Batch | None = None
    next_offset, stop = start, 0
    for position, size, header in _headers(data):
        base_offset, _, _, _, _, attributes, last_delta, base_time, max_time, producer_id, _, _, count = (
            header
        )
        stop = position + size
        if corrupt is not None:
            next_offset = _end_corrupt(chosen, corrupt, next_offset, base_offset, start, end)
            corrupt = None
        last_offset = base_offset + last_delta
        batch = Batch(
            *(position + HEADER_SIZE, stop, base_offset, base_time, max_time, attributes, count),
            last_offset,
        )
        if check_crcs and not crc_ok(data, position, size):
            if not keep_corrupt:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"the batch at offset {base_offset} does not match its checksum",
                )
            corrupt = batch._replace(corrupt=True)
            transactions.skips(attributes, producer_id, base_offset)  # it may be a marker, which ends one
            continue
        if base_offset >= end:
            return Piece(chosen, start, max(next_offset, end))  # nothing lies in between
        skipped = transactions.skips(attributes, producer_id, last_offset)
        if not skipped and last_offset >= start and count:
            chosen.append(batch)
        next_offset = max(next_offset, last_offset + 1)
    if corrupt is not None:
        behind = base_offset_at(data, stop) if behind is None else behind
        if behind is None:
            return Piece(chosen, start, next_offset, is_end_unknown=next_offset < end)
        next_offset = _end_corrupt(chosen, corrupt, next_offset, behind, start, end)
    return Piece(chosen, start, next_offset)


def _end_corrupt(
    chosen: list[Batch], corrupt: Batch, expected: int, behind: int, start: int, end: int
) -> int:
    """Choose a batch with a wrong checksum, if wanted offsets can be its own; where to read on.

    Its last offset is believed if its record count agrees and the offset lies before the next batch. So in a
    log with gaps those behind the batch are not counted. Its base offset, which no checksum covers, is
    believed if it lies before the next batch.
    """
    base_offset = corrupt.base_offset if corrupt.base_offset < behind else expected
    agrees = corrupt.last_offset - corrupt.base_offset + 1 == corrupt.record_count > 0
    last_offset = corrupt.last_offset if agrees and corrupt.last_offset < behind else behind - 1
    if max(base_offset, start) <= min(last_offset, end - 1):
        chosen.append(corrupt._replace(base_offset=base_offset, last_offset=last_offset))
    return max(expected, last_offset + 1)


def next_base_offset(corrupt: int, low: int, end: int, base_at: Callable[[int], int | None]) -> int:
    """The base offset of the batch after a corrupt one; `end` if there is none before it.

    The corrupt one is the first from the offset `low` on. `base_at` gives the base offset of the first batch
    that a broker sends for an offset. It may be that of the corrupt batch, for the offsets that the broker
    takes for its own. A binary search, since each call is a request.
    """
    found = high = end
    while high - low > 1:
        middle = (low + high) // 2
        base = base_at(middle)
        if base is None or base == corrupt:
            low = middle
        else:
            found, high = base, min(middle, base)
    return found


def base_offset_at(data: memoryview, position: int = 0) -> int | None:
    """The base offset of the batch that begins there, of which a part is enough; None if there is none."""
    if position + _BEGINNING_BYTES > len(data):
        return None
    base_offset, _, _, magic = _BEGINNING.unpack_from(data, position)
    return int(base_offset) if magic == MAGIC else None


def _headers(data: memoryview) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Position, size and fields of every batch; a broker may cut the last one short, which is left out."""
    position, size = 0, len(data)
    while position + HEADER_SIZE <= size:
        header = HEADER_FORMAT.unpack_from(data, position)
        length = header[1] + LENGTH_PREFIX
        if header[3] != MAGIC:
            raise ProtocolError(f"a record batch has magic {header[3]}, only {MAGIC} is known")
        if length < HEADER_SIZE:
            raise ProtocolError(f"a record batch claims to have {length} bytes")
        if position + length > size:
            return
        yield position, length, header
        position += length


def chunks(data: memoryview, batches: Sequence[Batch]) -> Iterator[Chunk]:
    """The batches decompressed, some at a time, so that what is in memory stays bounded."""
    waiting: list[Batch] = []
    payloads: list[bytes | memoryview] = []
    size = 0
    for batch in batches:
        if batch.corrupt:
            raise ProtocolError("the batch does not match its checksum")
        payload = data[batch.start : batch.end]
        payloads.append(decompress(batch.codec, payload) if batch.codec else payload)
        waiting.append(batch)
        size += len(payloads[-1])
        if size >= CHUNK_BYTES:
            yield _chunk(data, waiting, payloads)
            waiting, payloads, size = [], [], 0
    if waiting:
        yield _chunk(data, waiting, payloads)


def _chunk(data: memoryview, batches: list[Batch], payloads: list[bytes | memoryview]) -> Chunk:
    if not any(batch.codec for batch in batches):
        return Chunk(data, batches)  # where they lie already
    placed: list[Batch] = []
    position = 0
    for batch, payload in zip(batches, payloads, strict=True):
        placed.append(batch._replace(start=position, end=position + len(payload)))
        position += len(payload)
    return Chunk(b"".join(payloads), placed)
