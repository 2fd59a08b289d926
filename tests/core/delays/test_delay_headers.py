"""What headers ask for: when a message is to be delivered, what it replaces, what it cancels."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.delays.headers import SCHEDULE_KEY_BYTES_MAX, Delay, DelayError, parse
from forebay.wire.records import Header

NOON = 1_794_830_400_000
"""2026-11-16T12:00:00Z"""
DAY = 86_400_000
MAX = 30 * DAY
LATEST = 2**63 - 1


def asked(*headers: Header, now_ms: int = NOON, max_delay_ms: int = MAX) -> Delay | None:
    return parse(headers, now_ms, max_delay_ms)


def due(name: str, value: str, max_delay_ms: int = MAX) -> int | None:
    delay = asked((f"forebay-deliver-{name}", value.encode()), max_delay_ms=max_delay_ms)
    assert delay is not None
    assert delay == Delay(delay.due_ms)
    return delay.due_ms


def refusal(*headers: Header, now_ms: int = NOON, max_delay_ms: int = MAX) -> str:
    with pytest.raises(DelayError) as caught:
        asked(*headers, now_ms=now_ms, max_delay_ms=max_delay_ms)
    assert caught.value.message == str(caught.value)
    return caught.value.message


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("trace", b"1"), ("trace", None), ("", b"")),
        (("forebay-scheduled-at", b"1"), ("forebay-schedule-id", b"0-1")),
        (("Forebay-Deliver-At", b"soon"), ("forebay-deliver", b""), ("forebay-deliver-at ", b"1")),
    ],
)
def test_other_headers_ask_for_nothing(headers: tuple[Header, ...]) -> None:
    assert asked(*headers) is None


def test_other_headers_may_stand_beside_ours_even_twice() -> None:
    headers: list[Header] = [("a", b"1"), ("forebay-deliver-after", b"5"), ("a", None)]
    assert asked(*headers) == Delay(NOON + 5)


@pytest.mark.parametrize(
    ("text", "due_ms"),
    [
        (str(NOON + 1), NOON + 1),
        (str(NOON - 1), NOON - 1),
        ("0", 0),
        ("0001794830400000", NOON),
        ("2026-11-16T12:00:00Z", NOON),
        ("2026-11-16t12:00:00z", NOON),
        ("2026-11-16 12:00:00Z", NOON),
        ("2026-11-16T12:00Z", NOON),
        ("2026-11-16T13:00:00+01:00", NOON),
        ("2026-11-16T13:00:00+0100", NOON),
        ("2026-11-16T13:00:00+01", NOON),
        ("2026-11-16T06:30:00-05:30", NOON),
        ("2026-11-17T11:59:00+23:59", NOON),
        ("2026-11-16T12:00:00-00:00", NOON),
        ("2026-11-16T12:00:00.25Z", NOON + 250),
        ("2026-11-16T12:00:00,250Z", NOON + 250),
        ("2026-11-16T12:00:00.250000Z", NOON + 250),
        ("2026-11-16T12:00:00.000001Z", NOON + 1),
        ("2026-11-16T12:00:00.000000001Z", NOON + 1),
        ("2026-11-16T12:00:00.999000001Z", NOON + 1000),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_a_point_in_time_is_milliseconds_or_iso_8601(text: str, due_ms: int) -> None:
    assert due("at", text) == due_ms


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("0", 0),
        ("1", 1),
        ("1500", 1500),
        ("1500ms", 1500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", DAY),
        ("0d", 0),
        ("30d", MAX),
        ("007s", 7000),
    ],
)
def test_a_duration_counts_from_the_receipt(text: str, delay_ms: int) -> None:
    assert due("after", text) == NOON + delay_ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2026-11-16T12:00:00", "time zone"),
        ("2026-11-16 12:00", "time zone"),
        ("2026-11-16", "without a time"),
        ("2026-11-16Z", "without a time"),
        ("-1", "negative"),
        ("-1794830400000", "negative"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("1970-01-01T00:00:00+00:01", "before 1970"),
        ("0001-01-01T00:00:00+23:59", "before 1970"),
        ("0000-01-01T00:00:00Z", "does not exist"),
        ("2026-02-29T12:00:00Z", "does not exist"),
        ("2026-13-01T12:00:00Z", "does not exist"),
        ("2026-11-16T24:00:00Z", "does not exist"),
        ("2026-11-16T12:60:00Z", "does not exist"),
        ("2026-11-16T12:00:60Z", "does not exist"),
        ("2026-11-16T12:00:00+24:00", "does not exist"),
        ("2026-11-16T12:00:00+01:60", "does not exist"),
    ]
    + [
        (text, "ISO 8601")
        for text in (
            "soon",
            " 1794830400000",
            "1794830400000\n",
            "1794830400000.5",
            "1_794_830_400_000",
            "+1794830400000",
            "0x10",
            "1e12",
            "10s",
            "٣",
            "2026-11-16T12:00:00Z\n",
            "2026-11-16x12:00:00Z",
            "20261116T120000Z",
            "2026-W47-1T12:00:00Z",
            "2026-11-16T12Z",
            "2026-11-16T12:00:00.Z",
            "2026-11-16T12:00:00.0000000001Z",
            "2026-11-16T12:00:00 UTC",
            "2026-11-16T12:00:00+1:00",
            "2026-11-16T12:00:00+01:00:00",
            "2026-11-16T12:00:00Z+01:00",
            "12026-11-16T12:00:00Z",
        )
    ],
)
def test_a_point_in_time_that_says_nothing_is_refused(text: str, why: str) -> None:
    message = refusal(("forebay-deliver-at", text.encode()))
    assert message.startswith(f"header forebay-deliver-at: {text!r}")
    assert why in message


@pytest.mark.parametrize("text", ["-1", "-10s", "-9999999999999999999999h"])
def test_a_negative_duration_is_refused(text: str) -> None:
    assert refusal(("forebay-deliver-after", text.encode())) == (
        f"header forebay-deliver-after: {text!r} is negative"
    )


@pytest.mark.parametrize(
    "text",
    ["s", "10 s", "10S", "1.5h", "1h30m", "10s\n", "+10s", "10w", "٣s", "PT10S", "00:10", "1e3", "ten"],
)
def test_a_duration_that_says_nothing_is_refused(text: str) -> None:
    message = refusal(("forebay-deliver-after", text.encode()))
    assert message.startswith(f"header forebay-deliver-after: {text!r} is not a whole number")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("at", str(NOON + MAX + 1)),
        ("at", "2026-12-16T12:00:00.000000001Z"),
        ("at", "9999-12-31T23:59:59.999999999-23:59"),
        ("at", str(LATEST)),
        ("at", str(LATEST + 1)),
        ("at", "9" * 20),
        ("at", "9" * 10_000),
        ("after", str(MAX + 1)),
        ("after", "31d"),
        ("after", str(LATEST)),
        ("after", f"{LATEST}d"),
        ("after", str(2**64 + 5)),
        ("after", f"{2**64 + 5}s"),
        ("after", "9" * 10_000 + "d"),
    ],
)
def test_further_ahead_than_the_topic_allows_is_refused(name: str, text: str) -> None:
    message = refusal((f"forebay-deliver-{name}", text.encode()))
    assert "further ahead than the topic allows (forebay.delay.max.ms=2592000000)" in message
    assert len(message) < 300


def test_exactly_as_far_ahead_as_the_topic_allows_is_taken() -> None:
    assert due("at", str(NOON + MAX)) == NOON + MAX
    assert due("after", str(MAX)) == NOON + MAX
    assert due("after", "0", max_delay_ms=0) == NOON


def test_no_due_time_is_beyond_what_a_timestamp_can_say() -> None:
    assert due("at", str(LATEST), max_delay_ms=LATEST) == LATEST
    assert due("after", str(LATEST - NOON), max_delay_ms=LATEST) == LATEST
    for name, text in (("at", str(LATEST + 1)), ("after", str(LATEST - NOON + 1)), ("after", str(LATEST))):
        assert "further ahead" in refusal((f"forebay-deliver-{name}", text.encode()), max_delay_ms=LATEST)


def test_both_times_are_refused_even_if_they_agree() -> None:
    message = refusal(("forebay-deliver-at", str(NOON).encode()), ("forebay-deliver-after", b"0"))
    assert "forebay-deliver-at and forebay-deliver-after contradict each other" in message


NAMES = ("forebay-deliver-at", "forebay-deliver-after", "forebay-schedule-key", "forebay-cancel")
GOOD = dict(zip(NAMES, (b"1", b"1", b"k", b"0-1"), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_header_that_is_given_twice_is_refused(name: str) -> None:
    message = refusal((name, GOOD[name]), ("x", b""), (name, GOOD[name]))
    assert message == f"header {name} is given more than once"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [b"", None])
def test_an_empty_header_is_refused(name: str, value: bytes | None) -> None:
    assert refusal((name, value)) == f"header {name} is empty"


def test_a_schedule_key_is_any_bytes_with_or_without_a_time() -> None:
    key = b"\x00\xff order 7 "
    assert asked(("forebay-schedule-key", key)) == Delay(None, key)
    assert asked(("forebay-schedule-key", key), ("forebay-deliver-after", b"5")) == Delay(NOON + 5, key)
    longest = b"k" * SCHEDULE_KEY_BYTES_MAX
    assert asked(("forebay-schedule-key", longest)) == Delay(None, longest)
    assert "1025 bytes, more than 1024" in refusal(("forebay-schedule-key", longest + b"k"))


@pytest.mark.parametrize("schedule_id", [b"0-0", b"11-1234567", b"2147483647-9223372036854775807"])
def test_a_cancellation_names_a_schedule_id(schedule_id: bytes) -> None:
    assert asked(("forebay-cancel", schedule_id)) == Delay(None, None, schedule_id)


@pytest.mark.parametrize(
    "text", ["1", "0-", "0--1", "0-1-2", " 0-1", "0-1\n", "t-0-1", "9" * 11 + "-1", "0-9223372036854775808"]
)
def test_a_cancellation_of_anything_else_is_refused(text: str) -> None:
    assert "is not a schedule id" in refusal(("forebay-cancel", text.encode()))


@pytest.mark.parametrize("name", NAMES[:3])
def test_what_cancels_cannot_be_scheduled_itself(name: str) -> None:
    message = refusal(("forebay-cancel", b"0-1"), (name, GOOD[name]))
    assert message.startswith(f"header forebay-cancel contradicts {name}")


def test_a_value_that_is_not_text_is_refused_and_shown_in_part() -> None:
    message = refusal(("forebay-deliver-at", b"\xff\x00" * 5000))
    assert len(message) < 400


@given(st.lists(st.tuples(st.sampled_from((*NAMES, "other")), st.none() | st.binary(max_size=30))))
def test_any_headers_are_understood_or_refused(headers: list[Header]) -> None:
    try:
        delay = parse(headers, NOON, MAX)
    except DelayError:
        return
    ours = [header for header in headers if header[0] in NAMES]
    assert (delay is None) == (not ours)
    if delay is not None and delay.due_ms is not None:
        assert 0 <= delay.due_ms <= NOON + MAX


@given(st.text(alphabet="0123456789-+:.TZ smhd", max_size=40), st.sampled_from(NAMES[:2]))
def test_what_looks_like_a_time_is_understood_or_refused(text: str, name: str) -> None:
    try:
        delay = parse([(name, text.encode())], NOON, MAX)
    except DelayError as error:
        assert name in error.message
        return
    assert delay is not None
    assert delay.due_ms is not None
    assert (NOON if name == NAMES[1] else 0) <= delay.due_ms <= NOON + MAX


ZONES = st.integers(-(23 * 60 + 59), 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.datetimes(datetime(1970, 1, 3), datetime(9999, 12, 29), timezones=ZONES))
def test_every_time_that_python_writes_is_read_and_never_early(at: datetime) -> None:
    delay = parse([("forebay-deliver-at", at.isoformat().encode())], NOON, LATEST)
    assert delay is not None
    assert delay.due_ms is not None
    exact = at - datetime(1970, 1, 1, tzinfo=UTC)
    late = timedelta(milliseconds=delay.due_ms) - exact
    assert timedelta(0) <= late < timedelta(milliseconds=1)


@given(st.integers(0, 2**80), st.sampled_from(["", "ms", "s", "m", "h", "d"]), st.integers(0, 2**63 - 1))
def test_every_duration_is_exact_or_refused(count: int, unit: str, max_delay_ms: int) -> None:
    exact = count * {"": 1, "ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY}[unit]
    header: Header = ("forebay-deliver-after", f"{count}{unit}".encode())
    if exact <= max_delay_ms and NOON + exact <= LATEST:
        assert parse([header], NOON, max_delay_ms) == Delay(NOON + exact)
    else:
        assert "further ahead" in refusal(header, max_delay_ms=max_delay_ms)
