"""Which batches of a fetched piece of a log are to be decoded, judged by their headers alone.

Passed over are batches outside of the wanted offsets, control batches, and, for readers of committed
messages, those of aborted transactions. A broker lists the aborted transactions that touch the piece; a
producer's batches belong to one from its first offset up to the producer's next marker. The list is complete
for each piece, so nothing is remembered from one fetch to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.aborted_batches import AbortedBatches
from forebay.wire.batch import CODEC_MASK, HEADER_SIZE, LENGTH_PREFIX, MAGIC, crc_ok
from forebay.wire.batch import HEADER as HEADER_FORMAT
from forebay.wire.compression import decompress
from forebay.wire.messages.fetch import AbortedTransaction

CHUNK_BYTES = 4 << 20
"""How much is decoded at a time: enough that the work is done by numpy, little enough for a small memory."""


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


def select(
    data: memoryview,
    *,
    start: int,
    end: int,
    aborted: Iterable[AbortedTransaction] = (),
    check_crcs: bool = True,
    keep_corrupt: bool = False,
) -> Piece:
    """The batches with records at offsets from start up to, not including, end.

    `keep_corrupt`: batches with a wrong checksum are among them, marked, instead of an error.
    """
    transactions = AbortedBatches(aborted)
    chosen: list[Batch] = []
    next_offset = start
    for position, size, header in _headers(data):
        base_offset, _, _, _, _, attributes, last_delta, base_time, max_time, producer_id, _, _, count = (
            header
        )
        _cap_corrupt(chosen, base_offset)
        if base_offset >= end:
            next_offset = end  # nothing lies in between
            break
        last_offset = base_offset + last_delta
        skipped = transactions.skips(attributes, producer_id, last_offset)
        if skipped or last_offset < start or not count:
            next_offset = max(next_offset, last_offset + 1)
            continue
        corrupt = check_crcs and not crc_ok(data, position, size)
        if corrupt and not keep_corrupt:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base_offset} does not match its checksum"
            )
        if not corrupt:
            next_offset = max(next_offset, last_offset + 1)
        first = position + HEADER_SIZE
        chosen.append(
            Batch(
                *(first, position + size, base_offset, base_time, max_time, attributes, count),
                *(last_offset, corrupt),
            )
        )
    if chosen and chosen[-1].corrupt:
        next_offset = max(next_offset, chosen[-1].last_offset + 1)
    return Piece(chosen, start, next_offset)


def _cap_corrupt(chosen: list[Batch], next_base_offset: int) -> None:
    """A batch with a wrong checksum may claim any last offset: what the next batch holds is not its own."""
    if chosen and chosen[-1].corrupt:
        last_offset = min(chosen[-1].last_offset, next_base_offset - 1)
        chosen[-1] = chosen[-1]._replace(last_offset=last_offset)


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
