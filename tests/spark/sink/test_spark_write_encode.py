"""Rows become the records they should be, whatever is in them, and go where Java's producer sends them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ForebayError
from forebay.spark.sink.encode import Rows, cut, encode
from forebay.spark.sink.partitioning import Partitioner, murmur2
from forebay.wire.records import Record, parse_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # kafka-python reads its resources in a way that is deprecated
    from kafka.partitioner.default import murmur2 as oracle_murmur2

Row = tuple[bytes | None, bytes | None, int, Sequence[tuple[str, bytes | None]] | None]
"""Key, value, timestamp, headers."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

field = st.none() | st.binary(max_size=300)
header = st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70))
row = st.tuples(field, field, st.integers(0, 1 << 41), st.none() | st.lists(header, max_size=3))


def columns_of(rows: Sequence[Row]) -> Rows:
    headers = [None if each[3] is None else [{"key": k, "value": v} for k, v in each[3]] for each in rows]
    return Rows(
        key=pa.array([each[0] for each in rows], pa.binary()),
        value=pa.array([each[1] for each in rows], pa.binary()),
        timestamp=np.array([each[2] for each in rows], np.int64),
        headers=pa.array(headers, HEADERS),
    )


def records_of(rows: Rows, starts: list[int]) -> list[Record]:
    """All records, with their offsets counted from the first row."""
    found: list[Record] = []
    for start, payload in zip(starts, encode(rows, starts), strict=True):
        records = list(parse_records(bytes(payload.records), payload.count, start, payload.base_timestamp))
        assert payload.max_timestamp == max(record.timestamp for record in records)
        found += records
    return found


@given(st.lists(row, min_size=1, max_size=40), st.integers(1, 2000), st.data())
def test_records_are_the_rows_in_order_and_batches_keep_their_size(
    given_rows: list[Row],
    batch_bytes: int,
    data: st.DataObject,
) -> None:
    rows = columns_of(given_rows)
    borders = {0, *data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=3))}
    starts = cut(rows, sorted(borders), batch_bytes)

    assert borders <= set(starts)
    for record, (n, (key, value, timestamp, headers)) in zip(
        records_of(rows, starts), enumerate(given_rows), strict=True
    ):
        assert record == Record(n, timestamp, key, value, record.headers)
        assert list(record.headers) == (headers or [])
    for payload in encode(rows, starts):
        assert payload.count == 1 or len(payload.records) <= batch_bytes


def test_columns_that_are_slices_of_larger_ones_are_read_where_they_begin() -> None:
    rows = [(b"%d" % n, b"value %d" % n, n, [("h", b"%d" % n)] if n % 2 else None) for n in range(10)]
    whole = columns_of(rows)
    part = Rows(
        key=whole.key.slice(3, 4),
        value=whole.value.slice(3, 4),
        timestamp=whole.timestamp[3:7],
        headers=whole.headers.slice(3, 4) if whole.headers is not None else None,
    )
    assert records_of(part, [0]) == records_of(columns_of(rows[3:7]), [0])


def test_a_null_among_headers_that_has_bytes_behind_it_counts_for_nothing() -> None:
    items = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": b"2"}], HEADERS.value_type)
    hidden = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), items, mask=pa.array([True, False]))
    rows = Rows(
        key=pa.nulls(2, pa.binary()),
        value=pa.array([b"x", b"y"], pa.binary()),
        timestamp=np.zeros(2, np.int64),
        headers=hidden,
    )
    assert [list(record.headers) for record in records_of(rows, [0])] == [[], [("b", b"2")]]


@given(st.lists(st.binary(max_size=40) | st.binary(min_size=250, max_size=300), min_size=1, max_size=30))
def test_keys_hash_as_in_java(keys: list[bytes]) -> None:
    hashed = murmur2(pa.array(keys, pa.binary()))
    assert hashed.tolist() == [oracle_murmur2(key) & 0xFFFFFFFF for key in keys]


def test_a_partition_is_the_one_named_or_that_of_the_key_or_the_one_in_turn() -> None:
    partitioner = Partitioner("orders", 4, first=6)
    keys = pa.array([b"a", None, None, b"a"], pa.binary())
    wanted = pa.array([None, None, 3, 1], pa.int32())
    by_key = (oracle_murmur2(b"a") & 0x7FFFFFFF) % 4

    assert partitioner.assign(keys, wanted).tolist() == [by_key, 2, 3, 1]
    assert partitioner.assign(keys, None).tolist() == [by_key, 3, 3, by_key]


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_partition_that_does_not_exist_is_an_error_that_names_it(wrong: int) -> None:
    with pytest.raises(ForebayError, match=rf"partition {wrong} of topic orders, which has 4"):
        Partitioner("orders", 4, 0).assign(pa.nulls(1, pa.binary()), pa.array([wrong], pa.int32()))
