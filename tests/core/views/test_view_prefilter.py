"""The bytes that records are searched for before they are read find all that a condition lets through."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.views.view import compile_view
from forebay.wire.batch import assemble, build_batch, read_header
from forebay.wire.record_spans import payload_of
from forebay.wire.records import Header, Record
from support.machines.view_records import filtered, lets_through, record, records_of


@pytest.mark.parametrize(
    ("where", "needles"),
    [
        ("value.region = 'eu'", {b'"eu"', b"\\u"}),
        ("'eu' = value.a.b[0].region", {b'"eu"', b"\\u"}),
        ("value.region = 'é'", {b'"\xc3\xa9"', b"\\u"}),
        ("value.path = 'a/long/path'", {b"long", b"\\u"}),
        ("value.region LIKE 'eu-%'", {b"eu-", b"\\u"}),
        ("value.region LIKE '%north%south'", {b"north", b"\\u"}),
        ("starts_with(value.region, 'eu')", {b"eu", b"\\u"}),
        ("value.region IN ('eu', 'us')", {b'"eu"', b'"us"', b"\\u"}),
        ("value.region = 'eu' OR value.region = 'us'", {b'"eu"', b'"us"', b"\\u"}),
        ("value.region = 'eu' AND value.name = 'somebody'", {b'"somebody"', b"\\u"}),
        ("value.amount > 100", {b'"amount"', b"\\u"}),
        ("value.amount > 100 AND value.region = 'eu'", {b'"eu"', b"\\u"}),
        ("NOT value.amount > 100", {b'"amount"', b"\\u"}),
        ("lower(value.region) = 'eu'", {b'"region"', b"\\u"}),
        ("value.a.b IS NOT NULL", {b'"a"', b"\\u"}),
        ("value.active", {b'"active"', b"\\u"}),
        ("headers['region'] = 'eu'", {b"region\x04eu", b"region\x84"}),
        ("headers['region'] IS NOT NULL", {b"region"}),
        ("key = 'k1'", {b"\x04k1", b"\x00k1"}),
        ("key LIKE 'k1%'", {b"k1"}),
    ],
)
def test_what_records_must_have(where: str, needles: set[bytes]) -> None:
    assert set(compile_view(where, None).needles or ()) == needles


@pytest.mark.parametrize(
    "where",
    [
        "value.region IS NULL",
        "value.region = 'eu' OR value.n > 1 OR key IS NULL",
        "value.region ILIKE 'eu' OR value IS NULL",
        "coalesce(value.region, 'eu') = 'eu'",
        "value.region IS DISTINCT FROM 'eu'",
        "NOT (value.region = 'eu' AND value.n = 1)",
        "key = '\N{REPLACEMENT CHARACTER}'",
        "headers['x'] = '\N{REPLACEMENT CHARACTER}' OR key = ''",
        "timestamp > 5",
        "value[0] = 5",
        f"value.region IN ({', '.join(repr(f'r{number}') for number in range(100))}) OR offset = 1",
    ],
)
def test_conditions_that_any_record_may_fulfil(where: str) -> None:
    assert compile_view(where, None).needles is None


def test_nothing_is_equal_to_null() -> None:
    view = compile_view("value.region IN (NULL)", None)
    assert view.needles == ()
    assert not lets_through("value.region IN (NULL)", record({"region": None}))


TEXTS = st.text(alphabet='eu/"\\\n\x7fé€😀 ', max_size=4)
NAMES = st.sampled_from(["region", "n", "é", 'q"', ""])


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def json_text(text: str, escaped: st.DataObject) -> str:
    """A text as some writer of JSON might write it."""
    out = []
    for character in text:
        unit = character.encode("utf-16-be").hex()
        long = "".join(f"\\u{unit[at : at + 4]}" for at in range(0, len(unit), 4))
        short = {"/": "\\/", '"': '\\"', "\\": "\\\\", "\n": "\\n"}.get(character, character)
        out.append(escaped.draw(st.sampled_from([long, short])))
    return f'"{"".join(out)}"'


@given(TEXTS, TEXTS, NAMES, st.data())
def test_a_text_is_found_however_json_writes_it(
    text: str, other: str, name: str, data: st.DataObject
) -> None:
    written = f"{{{json_text(name, data)}:{json_text(text, data)}}}"
    assert json.loads(written) == {name: text}
    one = record(written.encode())
    field = f"value[{quoted(name)}]"
    for where in (
        f"{field} = {quoted(text)}",
        f"{field} IN ({quoted(other)}, {quoted(text)})",
        f"{field} IS NOT NULL",
    ):
        assert lets_through(where, one)
    part = text[1:]
    assert lets_through(f"contains({field}, {quoted(part)})", one)
    assert lets_through(f"{field} = {quoted(other)}", one) is (text == other)


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_keys_and_headers_are_found_whatever_the_length_of_their_lengths(
    text: str, other: str, more: int
) -> None:
    long = text * 20
    for found in (text, long):
        for where, one in (
            (f"key = {quoted(found)}", record({}, key=found.encode())),
            (f"headers['h'] = {quoted(found)}", record({}, headers=[("g", b"x"), ("h", found.encode())])),
        ):
            assert delivered(where, one, more) == 1
            assert delivered(
                where, one._replace(key=other.encode(), headers=[("h", other.encode())]), more
            ) == (found == other)


def delivered(where: str, one: Record, more: int) -> int:
    """How many records a view delivers of a batch whose lengths are written with so many bytes too many."""
    batch = bytes(build_batch([one]))
    header = read_header(batch)
    payload = long_record(one, more) if more else payload_of(batch, header, 1 << 20)
    return filtered(compile_view(where, None), bytes(assemble(header, payload))).delivered


def long_record(one: Record, more: int) -> bytes:
    def varint(number: int) -> bytes:
        raw, out = number << 1, bytearray()
        while raw >= 0x80:
            out.append(raw & 0x7F | 0x80)
            raw >>= 7
        return bytes([*out, raw | 0x80, *[0x80] * (more - 1), 0])

    def field(data: bytes) -> bytes:
        return varint(len(data)) + data

    headers = b"".join(field(name.encode()) + field(value or b"") for name, value in one.headers)
    body = b"\0\0\0" + field(one.key or b"") + field(one.value or b"") + varint(len(one.headers)) + headers
    return varint(len(body)) + body


HEADERS: st.SearchStrategy[list[Header]] = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.sampled_from([b"eu", b"us", b"", b"\xff"])), max_size=2
)
CONDITIONS = [
    "value.a = 'eu'", "value.b LIKE '%u%'", "value.a.b > 1", "value.a IN ('us', 'x/y')",
    "value.a IS NOT NULL",
    "headers['a'] = 'eu'", "headers['b'] LIKE 'e%'", "key = 'eu'", "key IN ('us', '')", "NOT value.b",
    "value.a <> 'us'", "value IS NULL", "offset > 2", "contains(value.b, 'u')",
]  # fmt: skip
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 3), st.sampled_from(["eu", "us", "x/y", "é"])),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.recursive(
        st.sampled_from(CONDITIONS),
        lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR", "AND NOT"]), inner).map(
            lambda three: f"({three[0]}) {three[1]} ({three[2]})"
        ),
        max_leaves=4,
    ),
    st.lists(st.tuples(JSON, st.sampled_from([None, b"eu", b"us", b""]), HEADERS), min_size=1, max_size=50),
)
def test_searching_for_bytes_changes_nothing_of_what_is_delivered(
    where: str, contents: list[tuple[Any, bytes | None, list[Header]]]
) -> None:
    made = [
        record(value, key=key, headers=headers, offset=offset)
        for offset, (value, key, headers) in enumerate(contents)
    ]
    batch = bytes(build_batch(made))
    view = compile_view(where, None)
    exact = filtered(replace(view, needles=None), batch)
    assert records_of(filtered(view, batch).data) == records_of(exact.data)


def test_records_behind_those_that_all_have_the_needle_are_not_lost() -> None:
    """After a while needles that every record has are not searched for."""
    made = [record({"a": number % 7}, offset=number) for number in range(100)]
    made += [record({"b": 1}, offset=100 + number) for number in range(50)]
    made += [record({"a": 3}, offset=150)]
    shown = records_of(filtered(compile_view("value.a = 3", None), bytes(build_batch(made))).data)
    assert [one.offset for one in shown] == [*range(3, 100, 7), 150]
