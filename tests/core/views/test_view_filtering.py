"""Batches through a view: what is delivered is the filter applied to every record, at the same offsets."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.views import matching
from forebay.core.views.filtering import filter_batches
from forebay.core.views.view import compile_view
from forebay.errors import ProtocolError
from forebay.wire.batch import (
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    TRANSACTIONAL,
    BatchHeader,
    EndTxnMarker,
    assemble,
    build_batch,
    build_marker,
    crc_ok,
    read_header,
    split,
)
from forebay.wire.compression import Codec
from forebay.wire.record_spans import placeholder
from forebay.wire.records import Record
from support.machines.view_records import NOW_MS, filtered, record, records_of


def document(one: Record) -> Any:
    return None if one.value is None else json.loads(one.value)


def is_json(one: Record) -> bool:
    try:
        document(one)
    except ValueError:
        return False
    return True


def field(one: Record, name: str) -> Any:
    found = document(one)
    return found.get(name) if isinstance(found, dict) else None


def header_of(one: Record, name: str) -> bytes | None:
    return dict(one.headers).get(name)


VIEWS: list[tuple[str, bool, Callable[[Record], bool]]] = [
    # the condition, whether it uses the value, and what it says
    ("value.region = 'eu'", True, lambda one: field(one, "region") == "eu"),
    ("value.region IN ('eu', 'ü/x')", True, lambda one: field(one, "region") in ("eu", "ü/x")),
    ("value.region LIKE '%u%'", True, lambda one: "u" in (field(one, "region") or "")),
    ("value.n > 3", True, lambda one: (field(one, "n") or 0) > 3),
    ("value.n IS NULL", True, lambda one: field(one, "n") is None),
    ("headers['region'] = 'eu'", False, lambda one: header_of(one, "region") == b"eu"),
    ("headers['region'] = 'eu' OR value.n = 1", True,
     lambda one: header_of(one, "region") == b"eu" or field(one, "n") == 1),
    ("key = 'a'", False, lambda one: one.key == b"a"),
    ("key = 'a' AND value.region = 'eu'", True, lambda one: one.key == b"a" and field(one, "region") == "eu"),
    ("offset % 3 = 1", False, lambda one: one.offset % 3 == 1),
    ("timestamp > 50", False, lambda one: one.timestamp > 50),
    ("partition = 3", False, lambda one: True),
    ("partition = 4", False, lambda one: False),
    ("value IS NULL OR value.region <> 'eu'", True,
     lambda one: document(one) is None or field(one, "region") not in (None, "eu")),
]  # fmt: skip

DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "region": st.sampled_from(["eu", "us", "ü/x", 'e"u', "", None]),
        "n": st.one_of(st.none(), st.integers(-5, 5)),
        "noise": st.sampled_from(["eu", "a", "région", "\\u0065u"]),
    },
)


def encoded(found: object, *, ascii_only: bool) -> bytes:
    return json.dumps(found, ensure_ascii=ascii_only, separators=(",", ":")).encode()


VALUES = st.one_of(
    st.none(),
    st.builds(encoded, DOCUMENTS, ascii_only=st.booleans()),
    st.just(b'{"region":"\\u0065u"}'),
    st.sampled_from([b"", b"{", b"[1,2]", b'"eu"', b"null", b'{"region":"eu"']),
)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["region", "x"]), st.one_of(st.none(), st.sampled_from([b"eu", b"us", b"\xff"]))
    ),
    max_size=3,
)


@st.composite
def stored_batches(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """Batches as a log has them: compressed, transactional, compacted, emptied, and markers between them."""
    data, everything = bytearray(), []
    offset = draw(st.sampled_from([0, 1000, 2**40]))
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["records", "records", "records", "marker", "empty"]))
        if kind == "marker":
            marker = EndTxnMarker(7, 0, draw(st.booleans()), 1)
            data += build_marker(marker, timestamp=NOW_MS, base_offset=offset, partition_leader_epoch=2)
            offset += 1
            continue
        found = []
        base = offset
        for _ in range(draw(st.integers(1, 6))):
            one = record(
                draw(VALUES),
                key=draw(st.sampled_from([None, b"a", b"b", b"\xff"])),
                headers=draw(HEADERS) or (),
                offset=offset,
                timestamp=draw(st.integers(0, 100)),
            )
            found.append(one)
            offset += draw(st.sampled_from([1, 1, 1, 90]))
        batch = build_batch(
            found,
            codec=draw(st.sampled_from(list(Codec))),
            base_offset=base,
            partition_leader_epoch=2,
            producer_id=7,
            producer_epoch=0,
            base_sequence=base % 1000,
            attributes=draw(st.sampled_from([0, TRANSACTIONAL])),
        )
        if kind == "empty":
            batch = placeholder(read_header(batch))
            found = []
        data += batch
        everything += found
        offset += draw(st.sampled_from([0, 0, 5]))
    return bytes(data), everything


@given(stored_batches(), st.sampled_from(VIEWS))
def test_a_view_is_the_filter_applied_to_every_record(
    stored: tuple[bytes, list[Record]], view: tuple[str, bool, Callable[[Record], bool]]
) -> None:
    data, everything = stored
    where, uses_value, holds = view
    shown = filtered(compile_view(where, None), data, read_header(data).base_offset)
    expected = [one for one in everything if (not uses_value or is_json(one)) and holds(one)]
    assert records_of(shown.data) == expected
    assert shown.delivered == len(expected)
    assert shown.examined == len(everything)
    assert shown.invalid <= sum(not is_json(one) for one in everything)
    assert_covers(data, shown.data)
    assert shown.next_offset == split(data)[-1][1].next_offset


def assert_covers(source: bytes, shown: bytes) -> None:
    """Control batches pass as they are, others keep what readers go by, and no offset is left out."""
    batches = [header for _, header in split(shown)]
    controls = [shown[at : at + one.size] for at, one in split(shown) if one.is_control]
    assert controls == [source[at : at + one.size] for at, one in split(source) if one.is_control]
    assert all(one.next_offset <= other.base_offset for one, other in pairwise(batches))
    assert batches[-1].next_offset == split(source)[-1][1].next_offset
    by_offset = {header.base_offset: header for _, header in split(source)}
    for header in batches:
        assert header.partition_leader_epoch == 2
        if header.record_count:
            original = by_offset[header.base_offset]
            assert kept_fields(header) == kept_fields(original)
        else:
            assert header.producer_id == NO_PRODUCER_ID
    assert not any(one.record_count == other.record_count == 0 for one, other in pairwise(batches))


def kept_fields(header: BatchHeader) -> tuple[int, ...]:
    return (
        header.last_offset,
        header.attributes,
        header.base_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def batch_of(*documents: object, base_offset: int = 0, **fields: Any) -> bytes:
    made = [record(one, offset=base_offset + number) for number, one in enumerate(documents)]
    return bytes(build_batch(made, base_offset=base_offset, **fields))


EU = compile_view("value.region = 'eu'", None)


def test_a_batch_that_loses_nothing_stays_as_it_is() -> None:
    batch = batch_of({"region": "eu"}, {"region": "eu"}, codec=Codec.ZSTD)
    assert filtered(EU, batch).data == batch


def test_a_stretch_without_a_match_is_one_empty_batch() -> None:
    data = b"".join(batch_of({"region": "us"}, base_offset=offset) for offset in range(100, 600))
    shown = filtered(EU, data, 100)
    [(_, header)] = split(shown.data)
    assert (header.base_offset, header.last_offset, header.record_count) == (100, 599, 0)
    assert shown.next_offset == 600
    assert crc_ok(shown.data, 0, header.size)


def test_a_stretch_that_is_too_long_for_one_batch_is_several() -> None:
    data = batch_of({"region": "us"}) + batch_of({"region": "us"}, base_offset=2**31)
    assert [header.next_offset for _, header in split(filtered(EU, data).data)] == [1, 2**31 + 1]


def test_batches_outside_of_the_offsets_are_not_looked_at() -> None:
    data = b"".join(
        batch_of({"region": "eu"}, {"region": "us"}, base_offset=offset) for offset in range(0, 10, 2)
    )
    shown = filtered(EU, data, 3, 8)
    assert [one.offset for one in records_of(shown.data)] == [2, 4, 6]
    assert shown.next_offset == 8
    # A batch is one: what reaches beyond the end is not shown in part.
    assert filtered(EU, data, 3, 7).next_offset == 6
    nothing = filtered(EU, data, 3, 3)
    assert (nothing.data, nothing.next_offset, nothing.examined, nothing.whole) == (b"", 3, 0, False)


@pytest.mark.parametrize("attributes", [LOG_APPEND_TIME, DELETE_HORIZON])
def test_times_stay_what_they_are(attributes: int) -> None:
    made = build_batch(
        [
            record({"region": region}, offset=number, timestamp=5000 + number)
            for number, region in enumerate("xyz")
        ]
    )
    header = read_header(made)._replace(attributes=attributes, max_timestamp=9000)
    batch = bytes(assemble(header, bytes(made[HEADER_SIZE:])))
    shown = filtered(compile_view("value.region = 'y'", None), batch)
    [one] = records_of(shown.data)
    is_appended = attributes == LOG_APPEND_TIME
    assert one.timestamp == (9000 if is_appended else 5001)
    assert read_header(shown.data).max_timestamp == (9000 if is_appended else 5001)
    assert bool(filtered(compile_view("timestamp = 9000", None), batch).delivered) is is_appended


def test_damage_is_not_given_a_good_checksum() -> None:
    batch = bytearray(batch_of({"region": "eu"}, {"region": "us"}))
    batch[-3] ^= 1
    with pytest.raises(ProtocolError, match="checksum"):
        filtered(EU, bytes(batch))


def test_what_lies_before_damage_is_delivered_first() -> None:
    damaged = bytearray(batch_of({"region": "eu"}, base_offset=5))
    damaged[-3] ^= 1
    data = batch_of({"region": "eu"}) + bytes(damaged)
    shown = filtered(EU, data)
    assert (shown.next_offset, shown.delivered) == (1, 1)
    with pytest.raises(ProtocolError):
        filtered(EU, data, shown.next_offset)


def passed_over(batch: bytes, where: str, first: int, last: int) -> bool:
    """Whether a view shows what lies around a batch, and of the batch itself nothing but its offsets."""
    before, after = batch_of({"region": "eu"}), batch_of({"region": "eu"}, base_offset=last + 1)
    shown = filtered(compile_view(where, None), before + batch + after)
    around = [(0, 0, 1), (first, last, 0), (last + 1, last + 1, 1)]
    headers = [header for _, header in split(shown.data)]
    return (
        shown.next_offset == last + 2
        and [(each.base_offset, each.last_offset, each.record_count) for each in headers] == around
    )


def test_records_that_do_not_fit_their_batch_are_passed_over() -> None:
    honest = batch_of({"region": "eu"}, {"region": "us"}, base_offset=1)
    header, payload = read_header(honest), honest[HEADER_SIZE:]
    for lie in (
        assemble(header, payload[:-1]),
        assemble(header._replace(record_count=3), payload),
        assemble(header._replace(record_count=1), payload),
        assemble(header._replace(base_timestamp=-5), payload),
        assemble(header._replace(attributes=Codec.ZSTD), payload),
        assemble(header._replace(attributes=7), payload),
        assemble(header, b"\x81\x80" + payload),
        assemble(header, b"no records at all"),
    ):
        for where in ("coalesce(value.region, key) IS NOT NULL", "coalesce(value.region, 'x') IS NOT NULL"):
            assert passed_over(bytes(lie), where, 1, 2), (where, lie)
    short = bytes(assemble(header._replace(last_offset_delta=0), payload))
    assert passed_over(short, "coalesce(value.region, key) IS NOT NULL", 1, 1)


def test_records_that_cannot_be_read_are_counted_as_invalid() -> None:
    header = read_header(batch_of({"region": "eu"}, {"region": "us"}))
    shown = filtered(EU, bytes(assemble(header, b'\x7f"eu"')))
    assert (shown.invalid, shown.examined, shown.delivered, shown.whole) == (2, 2, 0, True)


@given(st.binary(max_size=60), st.integers(0, 4))
def test_no_bytes_stop_a_view(payload: bytes, record_count: int) -> None:
    header = read_header(batch_of({"region": "eu"}))._replace(record_count=record_count, last_offset_delta=9)
    batch = bytes(assemble(header, payload))
    for where in ("value.region = 'eu'", "headers['region'] = 'eu' OR value.n = 1", "value.n IS NULL"):
        assert filtered(compile_view(where, None), batch).next_offset == 10


def test_a_payload_that_grows_too_large_is_passed_over() -> None:
    batch = batch_of({"region": "eu", "x": "y" * 100_000}, codec=Codec.GZIP)
    shown = filter_batches(
        EU, memoryview(batch), 0, 9, topic="t", partition=0, now_ms=0, decompress_max_bytes=10_000
    )
    assert (shown.next_offset, shown.delivered, shown.invalid) == (1, 0, 1)


def test_batches_that_unpack_to_much_are_filtered_in_several_pieces() -> None:
    large = {"region": "eu", "x": "y" * (3 << 20)}
    data = b"".join(batch_of(large, base_offset=at, codec=Codec.ZSTD) for at in range(14))
    assert len(data) < 100_000
    shown = filtered(EU, data)
    assert (shown.next_offset, shown.delivered, shown.whole) == (11, 11, False)
    rest = filtered(EU, data, shown.next_offset)
    assert (rest.next_offset, rest.delivered, rest.whole) == (14, 3, True)


def test_a_selection_rewrites_the_value_and_nothing_else() -> None:
    view = compile_view(
        "value.n > 1",
        "key, value.id, value.customer.name AS who, headers['x'], value.n * 2 AS twice, timestamp, "
        "value.none",
    )
    source = [
        record({"id": 1, "n": 1}, offset=0),
        record(
            {"id": 2, "n": 2, "customer": {"name": "é"}},
            offset=1,
            key=None,
            headers=[("x", b"1"), ("y", None)],
        ),
        record(None, offset=2),
        record({"id": 3.5, "n": 3}, offset=3, key=b"\xff", timestamp=NOW_MS + 5),
    ]
    for codec in Codec:
        shown = filtered(view, bytes(build_batch(source, codec=codec)))
        first, second = records_of(shown.data)
        assert json.loads(first.value or b"") == {
            "key": None, "id": 2, "who": "é", "x": "1", "twice": 4, "timestamp": NOW_MS, "none": None,
        }  # fmt: skip
        assert list(json.loads(first.value or b""))[:3] == ["key", "id", "who"]
        assert first._replace(value=None) == source[1]._replace(value=None)
        assert second._replace(value=None) == source[3]._replace(value=None)
        assert read_header(shown.data).codec == codec


def test_a_selection_alone_keeps_all_and_leaves_tombstones_without_a_value() -> None:
    source = [record({"id": 1}), record(None, offset=1), record(b"no json", offset=2)]
    shown = filtered(compile_view(None, "value.id"), bytes(build_batch(source)))
    assert [one.value for one in records_of(shown.data)] == [b'{"id":1}', None]
    assert (shown.delivered, shown.examined, shown.invalid) == (2, 3, 1)


def test_kept_tombstones_are_not_lost_to_the_prefilter() -> None:
    source = [record({"region": "eu"}), record({"region": "us"}, offset=1), record(None, offset=2)]
    view = compile_view("value.region = 'eu'", None, keep_tombstones=True)
    assert [one.offset for one in records_of(filtered(view, bytes(build_batch(source))).data)] == [0, 2]


def test_a_value_too_deep_to_be_written_is_counted_as_invalid() -> None:
    deep = b'{"x":' + b"[" * 500 + b"]" * 500 + b"}"
    shown = filtered(compile_view(None, "value.x"), bytes(build_batch([record(deep)])))
    assert (shown.delivered, shown.invalid) == (0, 1)


def test_a_constant_that_is_smaller_than_integers_are_is_a_float() -> None:
    view = compile_view(None, f"-{2**64 - 1} AS least, value.n")
    (shown,) = records_of(filtered(view, bytes(build_batch([record({"n": 1})]))).data)
    assert shown.value == b'{"least":-1.8446744073709552e+19,"n":1}'


def test_a_batch_of_which_a_selection_makes_too_much_is_passed_over_and_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matching, "SELECTED_BYTES_MIN", 0)
    view = compile_view(None, ", ".join(f"value AS a{number}" for number in range(50)))
    large, small = record({"text": "x" * 2_000}), record({"n": 1}, offset=1)
    data = bytes(build_batch([large])) + bytes(build_batch([small], base_offset=1))
    shown = filtered(view, data)
    assert (shown.delivered, shown.invalid, shown.next_offset) == (0, 2, 2)
    monkeypatch.setattr(matching, "SELECTED_BYTES_MIN", 1_000)
    assert [one.offset for one in records_of(filtered(view, data).data)] == [1]
