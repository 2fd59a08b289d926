"""The codecs: against the standard library and aiokafka, damaged data, and bombs."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterable

import aiokafka.codec as aio
import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ProtocolError
from forebay.wire.compression import Codec, compress, decompress

COMPRESSING = [codec for codec in Codec if codec]
codecs = st.sampled_from(COMPRESSING)
THEIRS = {
    Codec.GZIP: (aio.gzip_encode, aio.gzip_decode),
    Codec.SNAPPY: (aio.snappy_encode, aio.snappy_decode),
    Codec.LZ4: (aio.lz4_encode, aio.lz4_decode),
    Codec.ZSTD: (aio.zstd_encode, aio.zstd_decode),
}


@given(codec=st.sampled_from(list(Codec)), data=st.binary(max_size=500), times=st.integers(0, 300))
def test_round_trip(codec: Codec, data: bytes, times: int) -> None:
    assert decompress(codec, memoryview(compress(codec, memoryview(data * times)))) == data * times


@given(codec=codecs, data=st.binary(min_size=1, max_size=500), times=st.integers(1, 300))
def test_aiokafka_reads_ours_and_we_read_aiokafka(codec: Codec, data: bytes, times: int) -> None:
    encode, decode = THEIRS[codec]
    assert bytes(decode(compress(codec, data * times))) == data * times
    assert decompress(codec, bytes(encode(data * times))) == data * times


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, *range(1, 10))), (Codec.LZ4, range(1, 18)), (Codec.ZSTD, (-131_072, -5, 1, 19, 22))],
)
def test_every_level_that_kafka_allows_is_readable(codec: Codec, levels: Iterable[int]) -> None:
    data = b"".join(b"%d: a line of text, " % number for number in range(3_000))
    for level in levels:
        assert bytes(THEIRS[codec][1](compress(codec, data, level))) == data
    default = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}[codec]
    assert compress(codec, data, default) == compress(codec, data)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_001])
def test_large_outputs_are_put_together_from_pieces(codec: Codec, size: int) -> None:
    data = (b"%d " * 1000 % tuple(range(1000)) * (size // 3000))[:size]
    data += b"." * (size - len(data))
    packed = compress(codec, data)
    found = decompress(codec, packed, size)
    assert type(found) is bytes and found == data
    if codec is Codec.SNAPPY:
        assert decompress(codec, bytes(cramjam.snappy.compress_raw(data)), size) == data
    with pytest.raises(ProtocolError, match="larger than"):
        decompress(codec, packed, size - 1)
    with pytest.raises(ProtocolError):
        decompress(codec, packed[: len(packed) // 2], size)


@given(data=st.binary(max_size=500))
def test_gzip_of_the_standard_library(data: bytes) -> None:
    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert decompress(Codec.GZIP, gzip.compress(data)) == data


def test_snappy_is_read_raw_and_framed() -> None:
    data = b"one two three " * 9000
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, framed) == data
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    assert decompress(Codec.SNAPPY, bytes(aio.snappy_encode(data, xerial_compatible=False))) == data


def test_lz4_is_a_frame_of_independent_blocks() -> None:
    """Java's clients read no other: they refuse a frame without the flag for independence."""
    made = compress(Codec.LZ4, b"abc" * 100_000)
    assert made.startswith(b"\x04\x22\x4d\x18")
    assert made[4] & 0x20


@given(codec=codecs, data=st.binary(max_size=300))
def test_any_bytes_decompress_or_are_a_protocol_error(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(decompress(codec, data, 10_000)) <= 10_000


@given(codec=codecs, data=st.data())
def test_damaged_data_is_a_value_or_a_protocol_error(codec: Codec, data: st.DataObject) -> None:
    made = bytearray(compress(codec, b"some text to compress, " * 100))
    made[data.draw(st.integers(0, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(ProtocolError):
        decompress(codec, made[: data.draw(st.integers(1, len(made)))])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_limit_is_exact(codec: Codec) -> None:
    made = compress(codec, bytes(100_000))
    assert len(decompress(codec, made, 100_000)) == 100_000
    with pytest.raises(ProtocolError, match="larger than 99999 bytes"):
        decompress(codec, made, 99_999)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_large_output_needs_no_guess(codec: Codec) -> None:
    """The output buffer grows: this also watches over the error text of cramjam that says it is full."""
    data = bytes(3_000_000)
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("length", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00"])
def test_a_snappy_block_must_fit(length: bytes) -> None:
    with pytest.raises(ProtocolError, match="snappy block"):
        decompress(Codec.SNAPPY, b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + length)


def test_a_snappy_size_is_checked_before_it_is_allocated() -> None:
    with pytest.raises(ProtocolError, match="larger than"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\0" * 20)
    with pytest.raises(ProtocolError, match="cannot hold"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\x1f" + b"\0" * 20)
    with pytest.raises(ProtocolError, match="header is cut short"):
        decompress(Codec.SNAPPY, b"\x82SNAPPY\x00\x00")


def test_an_unknown_codec_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="codec 7"):
        decompress(7, b"")
    with pytest.raises(ProtocolError, match="codec 5"):
        compress(5, b"")
