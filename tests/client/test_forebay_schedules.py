"""What a record for later says to the broker, and which mistakes are found before anything is sent."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from forebay.client import ClientError, Record
from forebay.client.messages import Message, cancellation, schedule_headers

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
NOON_MS = 1_794_830_400_000


def headers(**fields: Any) -> dict[str, Any]:
    record = Record(topic="t", **{"key": "k", "value": "v", **fields})
    assert record.is_scheduled
    return dict(schedule_headers(record, [name for name, _ in fields.get("headers", ())]))


def test_a_record_without_a_schedule_has_no_headers_of_ours() -> None:
    record = Record(topic="t", value="v", timestamp_ms=5)
    assert not record.is_scheduled
    assert schedule_headers(record, ["forebay-deliver-at"]) == []


@pytest.mark.parametrize(
    ("at", "sent"),
    [
        (NOON, NOON_MS),
        (NOON.astimezone(timezone(timedelta(hours=-5))), NOON_MS),
        (NOON + timedelta(microseconds=1), NOON_MS + 1),
        (NOON + timedelta(milliseconds=1), NOON_MS + 1),
        (NOON_MS, NOON_MS),
        (0, 0),
    ],
)
def test_a_point_in_time_is_sent_in_milliseconds_and_is_never_early(at: datetime | int, sent: int) -> None:
    assert headers(deliver_at=at) == {"forebay-deliver-at": str(sent)}


@pytest.mark.parametrize(
    ("after", "sent"),
    [
        (0, 0),
        (10, 10_000),
        (0.25, 250),
        (1.1, 1100),
        (0.0001, 1),
        (timedelta(hours=2), 7_200_000),
        (timedelta(microseconds=1), 1),
    ],
)
def test_a_duration_is_sent_in_milliseconds(after: timedelta | float, sent: int) -> None:
    assert headers(deliver_after=after) == {"forebay-deliver-after": str(sent)}


def test_a_schedule_key_goes_with_a_time_or_without() -> None:
    assert headers(schedule_key="ü") == {"forebay-schedule-key": "ü".encode()}
    assert headers(schedule_key=b"\xff", deliver_after=1, key=None, partition=3) == {
        "forebay-schedule-key": b"\xff",
        "forebay-deliver-after": "1000",
    }


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"deliver_at": NOON, "deliver_after": 1}, "exclude each other"),
    ({"deliver_at": datetime(2026, 11, 16, 12)}, "time zone"),
    ({"deliver_at": NOON_MS / 1}, "neither a datetime nor whole milliseconds"),
    ({"deliver_at": True}, "neither a datetime nor whole milliseconds"),
    ({"deliver_at": "2026-11-16T12:00:00Z"}, "neither a datetime nor whole milliseconds"),
    ({"deliver_at": -1}, "before 1970"),
    ({"deliver_at": datetime(1969, 12, 31, tzinfo=UTC)}, "before 1970"),
    ({"deliver_after": -1}, "negative"),
    ({"deliver_after": timedelta(microseconds=-1001)}, "negative"),
    ({"deliver_after": math.nan}, "neither a timedelta nor a number of seconds"),
    ({"deliver_after": math.inf}, "neither a timedelta nor a number of seconds"),
    ({"deliver_after": True}, "neither a timedelta nor a number of seconds"),
    ({"deliver_after": "10s"}, "neither a timedelta nor a number of seconds"),
    ({"schedule_key": ""}, "1 to 1024 bytes, not 0"),
    ({"schedule_key": "k" * 1025}, "1 to 1024 bytes, not 1025"),
    ({"schedule_key": "k", "key": None}, "give a key, or a partition"),
    ({"schedule_key": "k", "value": None}, "use cancel"),
    ({"schedule_key": "k", "value": b""}, "use cancel"),
    ({"deliver_after": 1, "headers": [("forebay-deliver-after", b"1")]}, "is given, too"),
]


@pytest.mark.parametrize(("fields", "why"), MISTAKES)
def test_a_mistake_is_found_before_anything_is_sent(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ClientError, match=why):
        headers(**fields)


def test_a_delayed_tombstone_is_no_mistake() -> None:
    assert headers(deliver_after=1, value=None) == {"forebay-deliver-after": "1000"}
    assert headers(deliver_after=1, value=None, schedule_key="expiry") == {
        "forebay-deliver-after": "1000",
        "forebay-schedule-key": b"expiry",
    }


def test_what_cancels_has_no_value_and_goes_where_the_message_went() -> None:
    by_key = cancellation("t", "order 7", schedule_id=None, key="k", partition=None)
    assert by_key == Record(topic="t", key="k", headers=[("forebay-schedule-key", b"order 7")])
    sent = Message(topic="t", partition=3, offset=1742, timestamp_ms=0)
    by_id = cancellation("t", None, schedule_id=sent.schedule_id, key=None, partition=None)
    assert by_id == Record(topic="t", partition=3, headers=[("forebay-cancel", "3-1742")])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "by a schedule_key or by a schedule_id"),
        ({"schedule_key": "a", "schedule_id": "0-1"}, "by a schedule_key or by a schedule_id"),
        ({"schedule_key": "a"}, "give a key, or a partition"),
        ({"schedule_key": "", "key": "k"}, "1 to 1024 bytes"),
        ({"schedule_id": "17"}, "not a schedule id"),
        ({"schedule_id": "3--1"}, "not a schedule id"),
        ({"schedule_id": "3-17", "partition": 2}, "not in partition 2"),
    ],
)
def test_what_cannot_be_cancelled_is_refused(arguments: dict[str, Any], why: str) -> None:
    given = {"schedule_key": None, "schedule_id": None, "key": None, "partition": None, **arguments}
    with pytest.raises(ClientError, match=why):
        cancellation("t", **given)
