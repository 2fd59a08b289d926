"""The four codecs of record batches: gzip, snappy, lz4 frames and zstd.

A few bytes can claim to be gigabytes, so nothing here allocates memory of a size that the data chooses: the
output is a buffer that grows step by step up to `max_output_bytes`, and beyond that it is a ProtocolError.

The codecs release the interpreter lock, but clearing or copying a large buffer does not. So a large output
goes into pages that the system clears when they are first used, and is copied in pieces.

Snappy comes in two forms. Java's producers wrap raw snappy blocks in the framing of the xerial library (a
magic, two version numbers, then blocks with their length in front); others send one raw block. Both are read;
xerial is written, because every client reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache, partial
from importlib import import_module
from io import BytesIO
from mmap import MADV_DONTNEED, MAP_PRIVATE, mmap
from struct import Struct
from typing import Any

from forebay.errors import ProtocolError
from forebay.wire.varint import Bytes

MAX_OUTPUT_BYTES = 64 * 1024 * 1024

GZIP_DEFAULT = -1
GZIP_LEVEL = 6
LZ4_LEVEL = 9
ZSTD_LEVEL = 3
"""Kafka's default level."""
_LZ4_FAST = 1
_LZ4_MAX = 12
"""The library's maximum; Kafka allows up to 17."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_RATIO_MAX = 32
"""Three bytes of raw snappy unpack to at most 64, so a larger claim is false."""
_BLOCK_LENGTH = Struct(">i")
_PIECE_BYTES = 1 << 20
_FIRST_OUTPUT_BYTES_MIN = 4096
_GROWTH = 4

# cramjam's error when the output buffer is full. A test checks this text.
_OUTPUT_FULL = "failed to write whole buffer"


class Codec(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, number: int) -> Codec:
        try:
            return cls(number)
        except ValueError:
            raise ProtocolError(f"compression codec {number} does not exist") from None


EXPANSION_MAX = {
    Codec.NONE: 1,
    Codec.GZIP: 1032,
    Codec.SNAPPY: _SNAPPY_RATIO_MAX,
    Codec.LZ4: 255,
    Codec.ZSTD: 32768,
}
"""The maximum expansion of each format: a batch that claims more is refused unread."""


class OutputTooLarge(ProtocolError):
    """Compressed records are larger than allowed."""


@cache
def cramjam() -> Any:
    """The library, imported with the first records that are compressed."""
    return import_module("cramjam")


def compress(codec: int, data: Bytes, level: int | None = None) -> bytes:
    """`level` has Kafka's meaning and bounds for the codec; None is its default."""
    match Codec.of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            # Kafka writes the default as -1, which cramjam does not accept.
            chosen = GZIP_LEVEL if level in (None, GZIP_DEFAULT) else level
            return bytes(cramjam().gzip.compress(data, level=chosen))
        case Codec.SNAPPY:
            return _compress_xerial(memoryview(data))
        case Codec.LZ4:
            return _compress_lz4(data, LZ4_LEVEL if level is None else level)
        case Codec.ZSTD:
            return bytes(cramjam().zstd.compress(data, level=ZSTD_LEVEL if level is None else level))


def decompress(codec: int, data: Bytes, max_output_bytes: int = MAX_OUTPUT_BYTES) -> bytes:
    match Codec.of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _decompress_stream(cramjam().gzip, data, max_output_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_output_bytes)
        case Codec.LZ4:
            return _decompress_stream(cramjam().lz4, data, max_output_bytes)
        case Codec.ZSTD:
            return _decompress_stream(cramjam().zstd, data, max_output_bytes)


def _decompress_stream(module: Any, data: Bytes, max_output_bytes: int) -> bytes:
    """Decompress formats that do not reliably state their size: retry with a larger buffer if need be."""
    capacity = min(max_output_bytes, max(_FIRST_OUTPUT_BYTES_MIN, len(data) * _GROWTH))
    while True:
        try:
            return _filled(capacity, partial(module.decompress_into, data))
        except cramjam().DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise ProtocolError(f"compressed records are corrupt: {error}") from None
        if capacity >= max_output_bytes:
            raise _too_large(max_output_bytes)
        capacity = min(max_output_bytes, capacity * _GROWTH)


def _filled(capacity: int, fill: Callable[[bytearray | memoryview], int]) -> bytes:
    """The output that `fill` writes to a buffer of this size; it returns the length."""
    if capacity <= _PIECE_BYTES:
        output = bytearray(capacity)
        return bytes(memoryview(output)[: fill(output)])
    with mmap(-1, capacity, flags=MAP_PRIVATE) as pages, memoryview(pages) as view:
        size = fill(view)
        copied = BytesIO()
        for start in range(0, size, _PIECE_BYTES):
            with view[start : min(start + _PIECE_BYTES, size)] as piece:
                copied.write(piece)
                pages.madvise(MADV_DONTNEED, start, len(piece))  # several threads may unpack
        return copied.getvalue()  # the buffer itself


def _decompress_snappy(data: memoryview, max_output_bytes: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_block(data, max_output_bytes)
    output = BytesIO()
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise ProtocolError("snappy header is cut short")
    while position < len(data):
        block, position = _xerial_block(data, position)
        output.write(_decompress_block(block, max_output_bytes, used=output.tell()))
    return output.getvalue()


def _xerial_block(data: memoryview, position: int) -> tuple[memoryview, int]:
    start = position + _BLOCK_LENGTH.size
    if start > len(data):
        raise ProtocolError("snappy block length is cut short")
    (length,) = _BLOCK_LENGTH.unpack_from(data, position)
    stop = start + length
    # An empty block would let a long run of them cost time and yield nothing.
    if length <= 0 or stop > len(data):
        raise ProtocolError(f"snappy block of {length} bytes does not fit in its batch")
    return data[start:stop], stop


def _decompress_block(block: memoryview, max_output_bytes: int, used: int = 0) -> bytes:
    """Decompress raw snappy. It states its size first, which is checked before anything is allocated."""
    try:
        size = cramjam().snappy.decompress_raw_len(block)
        if used + size > max_output_bytes:
            raise _too_large(max_output_bytes)
        if size > len(block) * _SNAPPY_RATIO_MAX:
            raise ProtocolError(f"snappy block of {len(block)} bytes cannot hold the {size} it claims")
        output = _filled(size, partial(cramjam().snappy.decompress_raw_into, block))
    except cramjam().DecompressionError as error:
        raise ProtocolError(f"compressed records are corrupt: {error}") from None
    if len(output) != size:
        raise ProtocolError("snappy block is shorter than it says")
    return output


def _compress_lz4(data: Bytes, level: int) -> bytes:
    # Kafka's default is called 9, but means its fast compressor; other levels mean what they say.
    chosen = _LZ4_FAST if level == LZ4_LEVEL else min(level, _LZ4_MAX)
    # Java's clients refuse frames with linked blocks. The batch has its own checksum.
    compressor = cramjam().lz4.Compressor(level=chosen, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: memoryview) -> bytes:
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam().snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        output += _BLOCK_LENGTH.pack(len(block))
        output += block
    return bytes(output)


def _too_large(max_output_bytes: int) -> OutputTooLarge:
    return OutputTooLarge(f"compressed records are larger than {max_output_bytes} bytes when decompressed")
