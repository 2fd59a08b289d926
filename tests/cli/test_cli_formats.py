"""Format strings, JSON lines and what --from understands."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.cli.client import CommandError
from forebay.operations.messages.message_formats import Line, compile_format, iso_time, json_line
from forebay.operations.messages.positions import Beginning, End, Last, Offset, Time, parse_position

NOW_MS = 1_700_000_000_000
LINE = Line(
    topic="orders",
    partition=2,
    offset=41,
    timestamp_ms=NOW_MS,
    key=b"k",
    value=b"v\xff",
    headers=(("region", b"eu"), ("empty", None)),
)

lines = st.builds(
    Line,
    topic=st.text(min_size=1, max_size=20),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    timestamp_ms=st.integers(-1, 2**63 - 1),
    key=st.none() | st.binary(max_size=40),
    value=st.none() | st.binary(max_size=40),
    headers=st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3).map(
        tuple
    ),
)


def test_every_token_of_a_format() -> None:
    write = compile_format(r"%t/%p/%o/%k/%v/%h/%T/%D/%S/%%\t\x41\n")
    assert write(LINE) == (
        b"orders/2/41/k/v\xff/region=eu,empty=/1700000000000/2023-11-14T22:13:20.000Z/2/%\tA\n"
    )


def test_the_delivery_count_is_there_in_share_groups_only() -> None:
    write, again = compile_format("[%c]"), LINE._replace(delivery_count=2)
    assert (write(LINE), write(again)) == (b"[]", b"[2]")
    assert "delivery_count" not in json.loads(json_line(LINE))
    assert json.loads(json_line(again))["delivery_count"] == 2


def test_null_key_and_value_print_nothing_and_the_size_tells_them_from_empty() -> None:
    write = compile_format("[%k][%v]%S")
    assert write(LINE._replace(key=None, value=None)) == b"[][]-1"
    assert write(LINE._replace(key=b"", value=b"")) == b"[][]0"


@pytest.mark.parametrize("text", ["%q", "100%", "\\q", "end\\", r"\x4"])
def test_an_unknown_sign_in_a_format_is_refused_with_what_is_known(text: str) -> None:
    with pytest.raises(CommandError, match="%p partition"):
        compile_format(text)


@given(lines)
def test_json_lines_lose_nothing(line: Line) -> None:
    text = json_line(line)
    assert text.endswith(b"\n")
    assert text.count(b"\n") == 1
    read = json.loads(text)
    assert (read["topic"], read["partition"], read["offset"]) == (line.topic, line.partition, line.offset)
    assert _bytes(read, "key") == line.key
    assert _bytes(read, "value") == line.value
    assert tuple((header["name"], _bytes(header, "value")) for header in read["headers"]) == line.headers


def _bytes(read: dict[str, str | None], name: str) -> bytes | None:
    if (encoded := read.get(f"{name}_base64")) is not None:
        return base64.b64decode(encoded)
    text = read[name]
    return None if text is None else text.encode()


@given(lines, st.sampled_from("tpokvhTDS%"))
def test_any_message_can_be_formatted(line: Line, token: str) -> None:
    assert isinstance(compile_format(f"%{token}")(line), bytes)


def test_a_timestamp_that_no_calendar_knows_is_shown_as_it_is() -> None:
    assert iso_time(2**62) == str(2**62)
    assert iso_time(-1) == "-"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Beginning()),
        ("end", End()),
        ("0", Offset(0)),
        ("1700000000000", Offset(1_700_000_000_000)),
        ("-5", Last(5)),
        ("@1700000000000", Time(NOW_MS)),
        ("90s", Time(NOW_MS - 90_000)),
        ("5m", Time(NOW_MS - 300_000)),
        ("2h", Time(NOW_MS - 7_200_000)),
        ("7d", Time(NOW_MS - 604_800_000)),
        ("9999999w", Time(0)),
        ("2023-11-14T22:13:20Z", Time(NOW_MS)),
        ("2023-11-14T22:13:20", Time(NOW_MS)),
        ("2023-11-14T23:13:20+01:00", Time(NOW_MS)),
        ("2023-11-14", Time(1_699_920_000_000)),
    ],
)
def test_where_to_begin(text: str, position: object) -> None:
    assert parse_position(text, NOW_MS) == position


@given(st.text(max_size=12))
def test_any_text_is_a_position_or_one_clear_error(text: str) -> None:
    try:
        parse_position(text, NOW_MS)
    except CommandError as error:
        assert "how long ago" in str(error)
