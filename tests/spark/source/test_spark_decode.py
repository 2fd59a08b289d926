"""Decoding by numpy and Arrow, held against the parser that goes record by record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.spark.arrow.schema import COLUMNS, arrow_schema, spark_schema
from forebay.spark.source.columnar import varints
from forebay.spark.source.decode import ALL_ROWS, UNREADABLE, Decoder, Rows, UnreadableBatch
from forebay.spark.source.offset_ranges import OffsetRange, TopicPartition
from forebay.spark.source.record_batches import Piece, select
from forebay.wire.batch import (
    HEADER,
    HEADER_SIZE,
    NOTED,
    TRANSACTIONAL,
    EndTxnMarker,
    assemble,
    build_batch,
    build_marker,
    crc32c,
    patch_append_time,
    read_header,
    records,
    split,
)
from forebay.wire.compression import Codec
from forebay.wire.messages.fetch import AbortedTransaction
from forebay.wire.record_spans import without_records
from forebay.wire.records import Record
from forebay.wire.state.delay_notes import NoMore, build_note
from forebay.wire.varint import write_varint

AT = TopicPartition("orders", 3)
EVERYTHING = OffsetRange(AT, 0, 1 << 60)

blobs = st.none() | st.binary(max_size=200) | st.just(b"same length")
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Some batches, with gaps between offsets as compaction leaves them, also at the end of a batch."""
    log = bytearray()
    offset = draw(st.integers(0, 1 << 40))
    for _ in range(draw(st.integers(1, 4))):
        base = offset
        found = []
        for _ in range(draw(st.integers(1, 5))):
            moment = draw(st.integers(-1, 1 << 41))
            found.append(Record(offset, moment, draw(blobs), draw(blobs), draw(headers)))
            offset += draw(st.integers(1, 3))
        batch = build_batch(found, base_offset=base, codec=draw(st.sampled_from(Codec)))
        if draw(st.booleans()):
            patch_append_time(batch, 0, draw(st.integers(0, 1 << 41)))
        if draw(st.booleans()):
            header = read_header(batch)._replace(last_offset_delta=offset - 1 - base)
            batch = assemble(header, bytes(batch[HEADER_SIZE:]))
        log += batch
    return bytes(log)


def decode(
    log: bytes,
    wanted: OffsetRange = EVERYTHING,
    rows: Rows = ALL_ROWS,
    columns: Sequence[str] = tuple(COLUMNS),
) -> list[dict[str, Any]]:
    data = memoryview(log)
    schema = spark_schema(headers=True)
    decoder = Decoder(arrow_schema(type(schema)([schema[name] for name in columns])), wanted, rows)
    piece = select(data, start=wanted.start, end=wanted.end)
    found: list[dict[str, Any]] = []
    for batch in decoder.decode(data, piece):
        batch.validate(full=True)
        moments = batch.column("timestamp").cast("int64").to_pylist() if "timestamp" in columns else []
        made = batch.to_pylist()
        for row, moment in zip(made, moments, strict=False):
            row["timestamp"] = moment
        found += made
    return found


def expected(log: bytes) -> list[dict[str, Any]]:
    """The same rows from the parser that the broker has."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": AT.topic,
            "partition": AT.partition,
            "offset": record.offset,
            "timestamp": record.timestamp * 1000,
            "timestampType": int(header.is_log_append_time),
            "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
        }
        for position, header in split(log)
        for record in records(memoryview(log)[position : position + header.size])
    ]


@given(logs())
def test_rows_are_what_the_parser_says(log: bytes) -> None:
    assert decode(log) == expected(log)


@given(logs(), st.data())
def test_only_the_wanted_offsets_and_times_become_rows(log: bytes, data: st.DataObject) -> None:
    whole = expected(log)
    offsets = [row["offset"] for row in whole]
    low, high = sorted(data.draw(st.integers(offsets[0] - 1, offsets[-1] + 2)) for _ in range(2))
    since, until = sorted(data.draw(st.sampled_from([row["timestamp"] for row in whole])) for _ in range(2))
    span = Rows(timestamp_ms_min=since // 1000, timestamp_ms_max=until // 1000)
    found = decode(log, OffsetRange(AT, low, high), span)
    assert found == [
        row for row in whole if low <= row["offset"] < high and since <= row["timestamp"] <= until
    ]


@pytest.mark.parametrize("rows", [ALL_ROWS, Rows(timestamp_ms_min=5)], ids=["all", "later ones"])
def test_times_that_no_column_can_show_are_the_last_that_it_can(rows: Rows) -> None:
    """They do not begin anew in the past."""
    most_ms = (2**63 - 1) // 1000
    moments = [5, most_ms, most_ms + 1, 2**62]
    log = build_batch([Record(n, moment, None, b"x", ()) for n, moment in enumerate(moments)], base_offset=0)
    schema = spark_schema(headers=False)
    decoder = Decoder(arrow_schema(type(schema)([schema["timestamp"]])), EVERYTHING, rows)
    data = memoryview(bytes(log))
    (found,) = decoder.decode(data, select(data, start=0, end=10))
    shown = found.column(0).cast("int64").to_pylist()
    assert shown == [5000, *([most_ms * 1000] * 3)]


@given(logs(), st.data())
def test_damaged_bytes_are_an_error_and_nothing_worse(log: bytes, data: st.DataObject) -> None:
    damaged = bytearray(log)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(61, len(log) - 1))] = data.draw(st.integers(0, 255))
    view = memoryview(bytes(damaged))
    decoder = Decoder(arrow_schema(spark_schema(headers=True)), EVERYTHING)
    try:
        piece = select(view, start=0, end=1 << 62, check_crcs=False)
        for batch in decoder.decode(view, piece):
            batch.validate(full=True)
    except ProtocolError:
        pass


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70), min_size=1, max_size=40))
def test_integers_of_all_lengths_are_read_at_once(numbers: list[int]) -> None:
    data, starts = bytearray(), []
    for number in numbers:
        starts.append(len(data))
        write_varint(data, number)
    found, behind = varints(np.frombuffer(data, np.uint8), np.array(starts))
    assert found.tolist() == numbers
    assert behind.tolist() == [*starts[1:], len(data)]


def test_long_batches_of_equal_and_of_unequal_records() -> None:
    """Runs of equal lengths are found without looking at each record; here they begin, end and alternate."""
    lengths = [100] * 700 + [n % 90 for n in range(500)] + [40_000] * 60 + [7] * 300
    whole = [Record(n, n, b"k", bytes(length)) for n, length in enumerate(lengths)]
    log = bytes(build_batch(whole))
    assert [len(row["value"]) for row in decode(log)] == lengths
    assert [row["offset"] for row in decode(log)] == list(range(len(lengths)))


def test_much_data_comes_in_pieces() -> None:
    log = b"".join(
        bytes(build_batch([Record(n, 0, None, bytes(1 << 20))], base_offset=n, codec=Codec.ZSTD))
        for n in range(10)
    )
    data = memoryview(log)
    decoder = Decoder(arrow_schema(spark_schema(headers=False)), EVERYTHING)
    sizes = [batch.num_rows for batch in decoder.decode(data, select(data, start=0, end=99))]
    assert sizes == [4, 4, 2]


def test_only_the_columns_of_the_schema_are_made() -> None:
    log = bytes(build_batch([Record(0, 5, b"k", b"v")]))
    assert decode(log, columns=("value", "offset")) == [{"value": b"v", "offset": 0}]


def test_a_header_whose_key_is_not_text_stops_nobody() -> None:
    given = [Record(n, 0, None, b"v", [("first", b"1"), ("bad!", b"2")]) for n in range(2)]
    log = memoryview(bytes(build_batch(given)).replace(b"bad!", b"b\xffd!", 1))
    schema = spark_schema(headers=True)
    decoder = Decoder(arrow_schema(type(schema)([schema["headers"]])), EVERYTHING)
    (found,) = decoder.decode(log, select(log, start=0, end=9, check_crcs=False))
    found.validate(full=True)
    keys = [[header["key"] for header in row["headers"]] for row in found.to_pylist()]
    assert keys == [["first", "b\ufffdd!"], ["first", "bad!"]]


def test_a_checksum_that_does_not_fit() -> None:
    log = bytearray(build_batch([Record(0, 5, b"k", b"v")]))
    log[-2] ^= 1
    with pytest.raises(KafkaError, match="checksum") as caught:
        select(memoryview(log), start=0, end=9)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_batch_cut_short_is_left_for_the_next_fetch() -> None:
    first, second = (build_batch([Record(n, 0, None, b"v")], base_offset=n) for n in (0, 1))
    piece = select(memoryview(bytes(first + second[:-1])), start=0, end=9)
    assert (len(piece.batches), piece.next_offset) == (1, 1)


@pytest.mark.parametrize("damage", [b"\x01", b"\x00"])
def test_another_format_is_refused(damage: bytes) -> None:
    log = bytearray(build_batch([Record(0, 5, b"k", b"v")]))
    log[16:17] = damage
    with pytest.raises(ProtocolError, match="magic"):
        select(memoryview(log), start=0, end=9)


# -- transactions ------------------------------------------------------------------------------------------


def transactional(offset: int, producer_id: int) -> bytes:
    record = Record(offset, 0, None, b"%d" % producer_id)
    return bytes(build_batch([record], base_offset=offset, producer_id=producer_id, attributes=TRANSACTIONAL))


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    end = EndTxnMarker(producer_id, 0, commit, 0)
    return bytes(build_marker(end, timestamp=0, base_offset=offset))


def chosen(log: bytes, *aborted: tuple[int, int], start: int = 0) -> Piece:
    listed = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted]
    return select(memoryview(log), start=start, end=1 << 60, aborted=listed)


def offsets(piece: Piece) -> list[int]:
    return [batch.base_offset for batch in piece.batches]


def test_aborted_transactions_are_passed_over_up_to_their_marker() -> None:
    log = (
        transactional(0, 7)
        + transactional(1, 8)
        + marker(2, 7, commit=False)
        + transactional(3, 7)
        + marker(4, 8, commit=True)
        + marker(5, 7, commit=True)
        + transactional(6, 7)
        + marker(7, 7, commit=False)
    )
    piece = chosen(log, (7, 6), (7, 0))
    assert offsets(piece) == [1, 3]
    assert piece.next_offset == 8
    assert offsets(chosen(log)) == [0, 1, 3, 6]


def test_a_transaction_that_began_before_the_fetch() -> None:
    log = transactional(10, 7) + marker(11, 7, commit=False) + transactional(12, 7)
    assert offsets(chosen(log, (7, 3), start=10)) == [12]


def test_control_batches_are_never_rows() -> None:
    log = marker(0, 7, commit=True) + marker(1, 8, commit=False)
    piece = chosen(log)
    assert (piece.batches, piece.next_offset) == ([], 2)


def test_delay_notes_and_the_batches_that_they_have_emptied_are_never_rows() -> None:
    note = build_note([NoMore((1,))], bound=True, timestamp=0)
    HEADER.pack_into(note, 0, *read_header(note)._replace(base_offset=3))
    kept = build_batch([Record(4, 0, b"k", b"v")], base_offset=4, attributes=NOTED)
    left = without_records(read_header(build_batch([Record(5, 0, b"k", b"v")], base_offset=5)))
    piece = chosen(bytes(note + kept + left), start=3)
    assert (offsets(piece), piece.next_offset) == ([4], 6)


# -- batches that nobody can read --------------------------------------------------------------------------


def three_batches(*, damaged: bytes | None = None, crc: bool = True) -> bytes:
    """Offsets 0 to 1, 2 to 4 and 5 to 6; the payload of the second is replaced."""
    log = bytearray()
    for base, count in ((0, 2), (2, 3), (5, 2)):
        found = [Record(base + n, NOON_MS, b"k", b"value %d" % (base + n)) for n in range(count)]
        batch = bytearray(build_batch(found, base_offset=base, codec=Codec.LZ4))
        if damaged is not None and base == 2:
            batch[HEADER_SIZE:] = damaged.ljust(len(batch) - HEADER_SIZE, b"\0")
            if crc:
                header = read_header(batch)
                patched = header._replace(crc=crc32c(memoryview(batch)[21:]))
                HEADER.pack_into(batch, 0, *patched)
        log += batch
    return bytes(log)


NOON_MS = 1_700_000_000_000
SCHEMA = arrow_schema(spark_schema(headers=True))


@pytest.mark.parametrize("crc", [True, False])
def test_a_batch_that_cannot_be_read_is_named(crc: bool) -> None:
    view = memoryview(three_batches(damaged=b"garbage", crc=crc))
    piece = select(view, start=0, end=7, keep_corrupt=True)
    assert piece.next_offset == 7
    reason = "compressed records are corrupt" if crc else "does not match its checksum"
    with pytest.raises(UnreadableBatch, match=rf"offsets 2 to 4 of orders-3 cannot be read: .*{reason}"):
        list(Decoder(SCHEMA, OffsetRange(AT, 0, 7)).decode(view, piece))


@pytest.mark.parametrize("crc", [True, False])
@pytest.mark.parametrize(("start", "end"), [(0, 7), (3, 4), (4, 6)])
def test_a_batch_that_cannot_be_read_is_a_row_for_each_offset_if_that_is_wanted(
    crc: bool, start: int, end: int
) -> None:
    view = memoryview(three_batches(damaged=b"garbage", crc=crc))
    decoder = Decoder(SCHEMA, OffsetRange(AT, start, end), mark_unreadable=True)
    piece = select(view, start=start, end=end, keep_corrupt=True)
    rows = [row for batch in decoder.decode(view, piece) for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(start, end))
    marked = {row["offset"] for row in rows if row["timestampType"] == UNREADABLE}
    assert marked == {2, 3, 4} & set(range(start, end))
    assert all((row["value"] is None) == (row["offset"] in marked) for row in rows)


@pytest.mark.parametrize(("time_ms", "shown_ms"), [(2**63 - 1, (2**63 - 1) // 1000), (-(2**63), 0)])
def test_a_batch_that_cannot_be_read_may_claim_any_time(time_ms: int, shown_ms: int) -> None:
    log = bytearray(three_batches())
    at = next(position for position, header in split(bytes(log)) if header.base_offset == 2)
    header = read_header(memoryview(log)[at:])._replace(base_timestamp=time_ms)
    HEADER.pack_into(log, at, *header)
    piece = select(memoryview(log), start=0, end=7, keep_corrupt=True)
    decoder = Decoder(SCHEMA, OffsetRange(AT, 0, 7), mark_unreadable=True)
    rows = pa.Table.from_batches(decoder.decode(memoryview(log), piece))
    times_us = rows["timestamp"].cast(pa.int64()).to_pylist()
    assert times_us == [ms * 1000 for ms in [NOON_MS] * 2 + [shown_ms] * 3 + [NOON_MS] * 2]


def test_the_last_offset_of_a_corrupt_batch_is_not_believed() -> None:
    """Else the batches after it would be passed over."""
    log = bytearray(three_batches())
    at = next(position for position, header in split(bytes(log)) if header.base_offset == 2)
    header = read_header(memoryview(log)[at:])._replace(last_offset_delta=1000)
    HEADER.pack_into(log, at, *header)
    piece = select(memoryview(log), start=0, end=2000, keep_corrupt=True)
    assert piece.next_offset == 7
    assert [(batch.base_offset, batch.last_offset, batch.corrupt) for batch in piece.batches] == [
        (0, 1, False),
        (2, 4, True),
        (5, 6, False),
    ]
