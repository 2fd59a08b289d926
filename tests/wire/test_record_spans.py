"""Records as places: they agree with the parsed ones, and what is kept of a batch is what it was."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ProtocolError
from forebay.wire.batch import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    build_batch,
    crc_ok,
    read_header,
    records,
)
from forebay.wire.compression import MAX_OUTPUT_BYTES, Codec
from forebay.wire.record_spans import (
    TimestampOutOfRange,
    check_headers,
    keep_records,
    payload_of,
    placeholder,
    record_spans,
    without_records,
)
from forebay.wire.records import Record, parse_records

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2)


@dataclass(frozen=True)
class Made:
    batch: bytes
    records: list[Record]


@st.composite
def batches(draw: st.DrawFn) -> Made:
    base = draw(st.sampled_from([0, 7, 2**40]))
    offset = base
    made = []
    for _ in range(draw(st.integers(1, 8))):
        made.append(
            Record(
                offset,
                draw(st.integers(0, 2**42)),
                draw(st.one_of(st.none(), st.binary(max_size=200))),
                draw(st.one_of(st.none(), st.binary(max_size=200))),
                draw(HEADERS) or (),
            )
        )
        offset += draw(st.integers(1, 300))
    codec = draw(st.sampled_from(list(Codec)))
    return Made(bytes(build_batch(made, codec=codec, base_offset=base, producer_id=3, base_sequence=9)), made)


@given(batches())
def test_spans_are_the_records(made: Made) -> None:
    header = read_header(made.batch)
    payload = payload_of(made.batch, header, MAX_OUTPUT_BYTES)
    spans = list(record_spans(payload, header))
    assert [
        (header.base_offset + s.offset_delta, header.base_timestamp + s.timestamp_delta, s.key, s.has_value)
        for s in spans
    ] == [(r.offset, r.timestamp, r.key, r.value is not None) for r in made.records]
    assert spans[0].start == 0
    assert spans[-1].end == len(payload)


@given(batches(), st.data(), st.one_of(st.none(), st.integers(0, 2**43)))
def test_what_is_kept_stays_as_it_was(made: Made, data: st.DataObject, horizon_ms: int | None) -> None:
    header = read_header(made.batch)
    payload = payload_of(made.batch, header, MAX_OUTPUT_BYTES)
    spans = list(record_spans(payload, header))
    picked = data.draw(st.sets(st.integers(0, len(spans) - 1), min_size=1))
    kept = keep_records(header, payload, [spans[n] for n in sorted(picked)], delete_horizon_ms=horizon_ms)
    after = read_header(kept)
    assert crc_ok(kept, 0, after.size)
    expected = [made.records[n] for n in sorted(picked)]
    assert list(records(kept)) == expected
    assert after.max_timestamp == max(record.timestamp for record in expected)
    assert after.delete_horizon_ms == horizon_ms
    assert after[:1] + after[9:12] == header[:1] + header[9:12]
    assert (after.last_offset, after.last_sequence, after.codec) == (
        header.last_offset,
        header.last_sequence,
        header.codec,
    )


def test_a_horizon_is_set_once() -> None:
    record = Record(5, 1000, b"k", None)
    batch = build_batch([record], base_offset=5)
    for horizon_ms in (7000, 9000):
        header = read_header(batch)
        payload = payload_of(batch, header, MAX_OUTPUT_BYTES)
        spans = list(record_spans(payload, header))
        batch = keep_records(header, payload, spans, delete_horizon_ms=horizon_ms)
    assert read_header(batch).delete_horizon_ms == 7000
    assert list(records(batch)) == [record]


def test_the_append_time_of_a_batch_stays() -> None:
    made = build_batch([Record(0, 10, b"a", b""), Record(1, 20, b"b", b"")], attributes=LOG_APPEND_TIME)
    header = read_header(made)._replace(max_timestamp=5555)
    payload = payload_of(made, header, MAX_OUTPUT_BYTES)
    spans = list(record_spans(payload, header))
    kept = keep_records(header, payload, spans[:1], delete_horizon_ms=None)
    assert [record.timestamp for record in records(kept)] == [5555]


def test_bare_headers() -> None:
    made = build_batch(
        [Record(4, 10, b"a", b"")],
        base_offset=4,
        codec=Codec.ZSTD,
        producer_id=8,
        producer_epoch=2,
        base_sequence=30,
        attributes=TRANSACTIONAL | DELETE_HORIZON,
    )
    header = read_header(made)
    bare = read_header(without_records(header))
    assert (bare.size, bare.record_count, bare.attributes) == (61, 0, TRANSACTIONAL)
    assert (bare.producer_id, bare.producer_epoch, bare.last_sequence) == (8, 2, 30)
    assert list(records(without_records(header))) == []
    place = read_header(placeholder(header))
    assert (place.base_offset, place.last_offset, place.attributes) == (4, 4, 0)
    assert (place.producer_id, place.producer_epoch, place.base_sequence) == (-1, -1, -1)
    assert payload_of(placeholder(header), place, MAX_OUTPUT_BYTES) == b""
    assert crc_ok(placeholder(header), 0, 61)


@given(batches(), st.data())
def test_damaged_records_are_one_error(made: Made, data: st.DataObject) -> None:
    header = read_header(made.batch)
    payload = bytearray(payload_of(made.batch, header, MAX_OUTPUT_BYTES))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    try:
        list(record_spans(cut, header))
    except ProtocolError:
        return


@pytest.mark.parametrize("count", [0, 2])
def test_the_count_has_to_be_right(count: int) -> None:
    made = build_batch([Record(0, 10, b"a", b"")])
    header = read_header(made)
    payload = payload_of(made, header, MAX_OUTPUT_BYTES)
    with pytest.raises(ProtocolError):
        list(record_spans(payload, header._replace(record_count=count, last_offset_delta=5)))


@pytest.mark.parametrize("offsets", [(1, 0), (0, 0), (0, 100), (0, 1, 1), (100,)])
def test_offsets_rise_within_the_batch(offsets: tuple[int, ...]) -> None:
    made = build_batch([Record(n, 10, b"a", b"") for n in offsets])
    header = read_header(made)._replace(last_offset_delta=len(offsets) - 1)
    payload = payload_of(made, header, MAX_OUTPUT_BYTES)
    with pytest.raises(ProtocolError, match="offset delta"):
        list(record_spans(payload, header))


@pytest.mark.parametrize(
    ("base", "delta", "fits"),
    [
        (2**63 - 1, 0, True),
        (2**63 - 1, 1, False),
        (2**63 - 1, -(2**63), True),
        (0, -1, True),  # no timestamp
        (0, -2, False),
        (-1, 0, True),
        (-(2**63), 0, False),
        (2**62, 2**62, False),
    ],
)
def test_times_stay_within_64_bits(base: int, delta: int, fits: bool) -> None:
    made = build_batch([Record(0, 0, b"a", b""), Record(1, delta, b"a", b"")])
    header = read_header(made)._replace(base_timestamp=base)
    payload = payload_of(made, header, MAX_OUTPUT_BYTES)
    if fits:
        assert [span.timestamp_delta for span in record_spans(payload, header)] == [0, delta]
    else:
        with pytest.raises(TimestampOutOfRange):
            list(record_spans(payload, header))


@given(batches(), st.data())
def test_headers_are_checked_as_strictly_as_by_parsing(made: Made, data: st.DataObject) -> None:
    """Except that their keys need not be text: brokers do not care."""
    header = read_header(made.batch)
    payload = bytearray(payload_of(made.batch, header, MAX_OUTPUT_BYTES))
    span = data.draw(st.sampled_from(list(record_spans(bytes(payload), header))))
    payload[data.draw(st.integers(span.headers_at, span.end - 1))] ^= data.draw(st.integers(0, 255))
    found = error = None
    try:
        check_headers(bytes(payload), span)
    except ProtocolError as problem:
        found = problem
    try:
        list(parse_records(bytes(payload[span.start : span.end]), 1, 0, 0))
    except ProtocolError as problem:
        error = problem
    if error is None or "UTF-8" not in str(error):
        assert (found is None) == (error is None)
