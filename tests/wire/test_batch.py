"""Record batches: against other clients' encoders and decoders, and against bytes that are no batch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ProtocolError
from forebay.wire.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    EndTxnMarker,
    build_batch,
    build_marker,
    crc32c,
    crc_ok,
    patch_append_time,
    read_header,
    read_marker,
    records,
    split,
)
from forebay.wire.compression import Codec
from forebay.wire.records import Record
from forebay.wire.varint import read_varint, write_varint

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function of importlib while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

blobs = st.none() | st.binary(max_size=60)
timestamps = st.integers(0, 2**45)
header_lists = st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3)
codecs = st.sampled_from(list(Codec))


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    rows = draw(st.lists(st.tuples(timestamps, blobs, blobs, header_lists), min_size=1, max_size=8))
    return [Record(offset, *row[:3], tuple(row[3])) for offset, row in enumerate(rows)]


def plain(found: Iterator[Record]) -> list[Record]:
    return [record._replace(headers=tuple(record.headers)) for record in found]


def foreign(
    builder: type, rows: list[Record], *, codec: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    made = builder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        batch_size=1 << 20,
    )
    for row in rows:
        made.append(row.offset, row.timestamp, row.key, row.value, list(row.headers))
    return bytes(made.build())


def with_fields(batch: bytes | bytearray, **changes: int) -> bytearray:
    """The batch with other header fields and a CRC that fits them."""
    header = read_header(batch)._replace(**changes)
    made = bytearray(HEADER.pack(*header) + batch[HEADER_SIZE:])
    made[17:21] = crc32c(made[21:]).to_bytes(4, "big")
    return made


@given(value=st.integers(-(2**63), 2**63 - 1))
def test_varints_round_trip(value: int) -> None:
    out = bytearray()
    write_varint(out, value)
    assert read_varint(out, 0, 64) == (value, len(out))


@pytest.mark.parametrize("data", [b"\xff" * 5, b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\x1f"])
def test_a_varint_of_more_than_its_bits_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_varint(data, 0)


def test_varint_limits() -> None:
    assert read_varint(b"\xff\xff\xff\xff\x0f", 0) == (-(2**31), 5)
    assert read_varint(b"\xfe\xff\xff\xff\x0f", 0) == (2**31 - 1, 5)


@given(rows=record_lists(), codec=codecs, base=st.integers(0, 2**40))
def test_records_round_trip(rows: list[Record], codec: Codec, base: int) -> None:
    placed = [row._replace(offset=row.offset + base) for row in rows]
    batch = build_batch(placed, codec=codec, base_offset=base)
    assert plain(records(batch)) == placed
    assert crc_ok(batch, 0, len(batch))
    header = read_header(batch)
    assert header.size == len(batch)
    assert header.codec == codec
    assert (header.base_offset, header.last_offset) == (base, base + len(rows) - 1)
    assert header.max_timestamp == max(row.timestamp for row in rows)


@given(
    rows=record_lists(),
    producer=st.tuples(st.integers(0, 2**60), st.integers(0, 99), st.integers(0, 2**31 - 1)),
)
@pytest.mark.parametrize("builder", [KafkaPythonBuilder, AioBuilder])
def test_the_same_bytes_as_other_builders(
    builder: type, rows: list[Record], producer: tuple[int, int, int]
) -> None:
    ours = build_batch(rows, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    theirs = foreign(builder, rows, producer=producer)
    # The leader epoch is the broker's to set; builders differ in what they leave there.
    ours[12:16] = theirs[12:16]
    assert ours == theirs


@given(rows=record_lists(), codec=codecs)
def test_aiokafka_reads_ours_and_we_read_aiokafka(rows: list[Record], codec: Codec) -> None:
    theirs = AioBatch(bytes(build_batch(rows, codec=codec)))
    assert theirs.validate_crc()
    seen = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert seen == rows
    long_rows = [row._replace(value=b"compress me " * 50) for row in rows]
    batch = foreign(AioBuilder, long_rows, codec=codec)
    assert read_header(batch).codec == codec
    assert plain(records(batch)) == long_rows


@given(rows=record_lists(), codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_kafka_python_reads_ours(rows: list[Record], codec: Codec) -> None:
    theirs = KafkaPythonBatch(bytes(build_batch(rows, codec=codec)))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == rows


@given(data=st.binary(max_size=200), codec=codecs, count=st.integers(-5, 2**31 - 1))
def test_any_payload_is_records_or_a_protocol_error(data: bytes, codec: Codec, count: int) -> None:
    header = read_header(build_batch([Record(0, 0, b"k", b"v")]))
    batch = (
        HEADER.pack(*header._replace(batch_length=49 + len(data), attributes=codec, record_count=count))
        + data
    )
    try:
        found = list(records(batch))
    except ProtocolError:
        return
    assert len(found) == max(count, 0)


@given(rows=record_lists(), data=st.data())
def test_a_flipped_byte_fails_the_crc_and_never_crashes(rows: list[Record], data: st.DataObject) -> None:
    batch = build_batch(rows)
    position = data.draw(st.integers(0, len(batch) - 1))
    batch[position] ^= data.draw(st.integers(1, 255))
    if position >= 17:
        assert not crc_ok(batch, 0, len(batch))
    with contextlib.suppress(ProtocolError):
        list(records(batch))


@given(rows=record_lists(), data=st.data())
def test_a_cut_batch_is_a_protocol_error(rows: list[Record], data: st.DataObject) -> None:
    batch = bytes(build_batch(rows))
    cut = batch[: data.draw(st.integers(0, len(batch) - 1))]
    with pytest.raises(ProtocolError):
        records(cut)
    assert not crc_ok(cut, 0, len(batch))
    if cut:
        with pytest.raises(ProtocolError):
            split(batch + cut)


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"\x01\x00", 1),  # a negative length
        (b"\x0c\x00\x00\x00\x01\x01", 1),  # cut before its headers
        (b"\x0c\x00\x00\x00\x7e\x01\x00", 1),  # a key longer than the record
        (b"\x0c\x00\x00\x00\x01\x01\x04", 1),  # more headers than bytes
        (b"\x0c\x00\x00\x00\x01\x01\x01", 1),  # a negative number of headers
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1),  # bytes after the headers
        (b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1),  # a header without key
        (b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01", 1),  # a header key that is not UTF-8
        (b"\x0c\x00\x00\x00\x01\x01\x00", 2),  # fewer records than announced
        (b"\x0c\x00\x00\x00\x01\x01\x00" * 2, 1),  # more
    ],
)
def test_malformed_records(payload: bytes, count: int) -> None:
    header = read_header(build_batch([Record(0, 0, None, None)]))
    batch = HEADER.pack(*header._replace(batch_length=49 + len(payload), record_count=count)) + payload
    with pytest.raises(ProtocolError):
        list(records(batch))


def test_a_header_needs_its_bytes_and_its_magic() -> None:
    batch = build_batch([Record(0, 0, None, b"v")])
    with pytest.raises(ProtocolError, match="61 bytes"):
        read_header(batch, len(batch) - 60)
    with pytest.raises(ProtocolError, match="magic 1"):
        records(with_fields(batch, magic=1))
    with pytest.raises(ProtocolError, match="codec 5"):
        records(with_fields(batch, attributes=5))


@given(rows=record_lists(), codec=codecs)
def test_append_time_becomes_every_records_time(rows: list[Record], codec: Codec) -> None:
    buffer = bytearray(b"?" * 3) + build_batch(rows, codec=codec)
    patch_append_time(memoryview(buffer), 3, 2_000_000_000_000)
    batch = bytes(buffer[3:])
    assert crc_ok(batch, 0, len(batch))
    assert read_header(batch).is_log_append_time
    assert plain(records(batch)) == [row._replace(timestamp=2_000_000_000_000) for row in rows]
    assert {r.timestamp for r in AioBatch(batch)} == {2_000_000_000_000}


@given(groups=st.lists(record_lists(), max_size=5))
def test_split_finds_every_batch(groups: list[list[Record]]) -> None:
    batches = [build_batch(rows) for rows in groups]
    buffer = b"".join(batches)
    found = split(buffer)
    assert [buffer[p : p + h.size] for p, h in found] == batches


@given(data=st.binary(max_size=300))
def test_split_of_anything_ends(data: bytes) -> None:
    try:
        found = split(data)
    except ProtocolError:
        return
    assert sum(header.size for _, header in found) == len(data)


def test_sequences_wrap_to_zero() -> None:
    header = BatchHeader(0, 49, 0, 2, 0, 0, 3, 0, 0, 1, 0, 2**31 - 2, 4)
    assert header.last_sequence == 1
    assert header._replace(base_sequence=-1).last_sequence == -1
    assert header._replace(base_sequence=5).last_sequence == 8
    assert header.next_offset == 4


def test_gaps_between_offsets_are_kept() -> None:
    rows = [Record(10, 5, b"a", b"1"), Record(17, 6, b"b", b"2")]
    batch = build_batch(rows, base_offset=9)
    assert plain(records(batch)) == rows
    assert read_header(batch).last_offset == 17


@pytest.mark.parametrize("commit", [True, False])
def test_markers_round_trip_and_aiokafka_agrees(commit: bool) -> None:
    marker = EndTxnMarker(producer_id=9, producer_epoch=3, commit=commit, coordinator_epoch=12)
    batch = build_marker(marker, timestamp=77, base_offset=100, partition_leader_epoch=4)
    header = read_header(batch)
    assert header.is_control
    assert header.is_transactional
    assert (header.base_sequence, header.record_count, header.base_offset) == (-1, 1, 100)
    assert read_marker(batch) == marker
    assert AioBatch(bytes(batch)).is_control_batch
    (record,) = records(batch)
    assert record.key == b"\x00\x00\x00" + bytes([commit])
    assert record.value == b"\x00\x00\x00\x00\x00\x0c"


def test_what_is_no_marker() -> None:
    flags = TRANSACTIONAL | CONTROL
    with pytest.raises(ProtocolError):
        read_marker(build_batch([Record(0, 0, b"\0\0\0\1", b"\0" * 6)]))
    with pytest.raises(ProtocolError):
        read_marker(build_batch([Record(0, 0, b"\0", b"\0" * 6)], attributes=flags))
    with pytest.raises(ProtocolError):
        read_marker(build_batch([Record(0, 0, b"\0\0\0\1", b"\0")], attributes=flags))
    assert read_marker(build_batch([Record(0, 0, b"\0\0\0\5", b"\0" * 6)], attributes=flags)) is None
