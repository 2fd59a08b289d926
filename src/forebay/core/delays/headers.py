"""The delay headers of a record: deliver it later, replace a waiting message, or cancel one.

    forebay-deliver-at     when: milliseconds since 1970, or ISO 8601 with a time zone (2026-11-16T12:00:00Z)
    forebay-deliver-after  in how much time from the receipt by the broker: milliseconds, or 10s, 5m, 2h, 1d
    forebay-schedule-key   replaces the message of the same partition that waits under this key
    forebay-cancel         cancels the message that waits under this id (partition-offset)

Values are text. Anything ambiguous is refused, never guessed: both times, a header that is given twice, a
time without a zone. A time in the past is valid: such a message is due at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from forebay.wire.records import Header

PREFIX: Final = "forebay-"
DELIVER_AT: Final = "forebay-deliver-at"
DELIVER_AFTER: Final = "forebay-deliver-after"
SCHEDULE_KEY: Final = "forebay-schedule-key"
CANCEL: Final = "forebay-cancel"
_OURS: Final = frozenset((DELIVER_AT, DELIVER_AFTER, SCHEDULE_KEY, CANCEL))

SCHEDULE_KEY_BYTES_MAX: Final = 1024

_LATEST_MS = 2**63 - 1
"""The latest time that a timestamp of a record can say."""
_LAST_OFFSET = 2**63 - 1

_EPOCH = datetime(1970, 1, 1)
_SHOWN_BYTES_MAX = 60
_UNIT_MS = {b"": 1, b"ms": 1, b"s": 1000, b"m": 60_000, b"h": 3_600_000, b"d": 86_400_000}

# This many digits hold every 64-bit number, and bound the work of converting them.
_NUMBER = re.compile(rb"\d{1,19}")
_DURATION = re.compile(rb"(\d{1,19})(ms|s|m|h|d|)")
_LONG_NUMBER = re.compile(rb"\d{20,}(?:ms|s|m|h|d|)")
_NEGATIVE = re.compile(rb"-\d+(?:ms|s|m|h|d|)")
_ID = re.compile(rb"\d{1,10}-\d{1,19}")
_ISO_8601 = re.compile(
    rb"(\d{4})-(\d\d)-(\d\d)"
    rb"(?:[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    rb"(?:([Zz])|([+-])(\d\d)(?::?(\d\d))?)?"
)


class Delay(NamedTuple):
    due_ms: int | None = None
    """When to deliver it, by the broker's clock; None: at once."""
    schedule_key: bytes | None = None
    cancels: bytes | None = None
    """The id of the message that it cancels, as partition-offset. Such a record requests nothing else."""


class DelayError(Exception):
    """A record has an impossible request. The error message is for the record's producer."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def parse(headers: Sequence[Header], now_ms: int, max_delay_ms: int) -> Delay | None:
    """The delay that the record requests; None if it has none of these headers. Raises DelayError."""
    given: dict[str, bytes] = {}
    for name, value in headers:
        if not name.startswith(PREFIX) or name not in _OURS:
            continue
        if name in given:
            raise DelayError(f"header {name} is given more than once")
        if not value:
            raise DelayError(f"header {name} is empty")
        given[name] = value
    if not given:
        return None
    if CANCEL in given:
        return _cancellation(given)
    due_ms = _due_ms(given.get(DELIVER_AT), given.get(DELIVER_AFTER), now_ms, max_delay_ms)
    return Delay(due_ms, _schedule_key(given.get(SCHEDULE_KEY)))


def _cancellation(given: dict[str, bytes]) -> Delay:
    if len(given) > 1:
        others = ", ".join(sorted(given.keys() - {CANCEL}))
        raise DelayError(f"header {CANCEL} contradicts {others}: what cancels is not delivered itself")
    cancels = given[CANCEL]
    if _ID.fullmatch(cancels) is None or int(cancels.split(b"-")[1]) > _LAST_OFFSET:
        raise DelayError(f"header {CANCEL}: {_shown(cancels)} is not a schedule id, such as 0-1234")
    return Delay(cancels=cancels)


def _schedule_key(key: bytes | None) -> bytes | None:
    if key is not None and len(key) > SCHEDULE_KEY_BYTES_MAX:
        raise DelayError(f"header {SCHEDULE_KEY} has {len(key)} bytes, more than {SCHEDULE_KEY_BYTES_MAX}")
    return key


def _due_ms(at: bytes | None, after: bytes | None, now_ms: int, max_delay_ms: int) -> int | None:
    if at is not None and after is not None:
        raise DelayError(f"headers {DELIVER_AT} and {DELIVER_AFTER} contradict each other: give one")
    if at is not None:
        name, due_ms = DELIVER_AT, _point_in_time(at)
    elif after is not None:
        name, due_ms = DELIVER_AFTER, now_ms + _duration_ms(after)
    else:
        return None
    if due_ms - now_ms > max_delay_ms or due_ms > _LATEST_MS:
        raise _too_far(name, at or after or b"", max_delay_ms)
    return due_ms


def _point_in_time(text: bytes) -> int:
    if _NUMBER.fullmatch(text):
        return int(text)
    if text.isdigit():  # of more digits
        return _LATEST_MS + 1
    if _NEGATIVE.fullmatch(text):
        raise _not_a_time(text, "is negative")
    match = _ISO_8601.fullmatch(text)
    if match is None:
        raise _not_a_time(text, "is not milliseconds since 1970 nor ISO 8601, such as 2026-11-16T12:00:00Z")
    if match[4] is None:
        raise _not_a_time(text, "is a day without a time, such as 2026-11-16T12:00:00Z")
    if match[8] is None and match[9] is None:
        raise _not_a_time(text, "has no time zone: add Z for UTC, or an offset such as +01:00")
    try:
        local = _local_time(match)
    except ValueError as error:
        raise _not_a_time(text, f"does not exist: {error}") from None
    since_epoch = local - _EPOCH
    seconds = since_epoch.days * 86_400 + since_epoch.seconds - _zone_seconds(text, match)
    # A fraction of a millisecond is rounded up: never early.
    due_ms = seconds * 1000 - (-int((match[7] or b"").ljust(9, b"0")) // 1_000_000)
    if due_ms < 0:
        raise _not_a_time(text, "is before 1970")
    return due_ms


def _local_time(match: re.Match[bytes]) -> datetime:
    year, month, day, hour, minute = (int(part) for part in match.group(1, 2, 3, 4, 5))
    return datetime(year, month, day, hour, minute, int(match[6] or 0))


def _zone_seconds(text: bytes, match: re.Match[bytes]) -> int:
    """The offset of the zone from UTC."""
    if match[9] is None:
        return 0
    hours, minutes = int(match[10]), int(match[11] or 0)
    if hours > 23 or minutes > 59:
        raise _not_a_time(text, "has a time zone that does not exist")
    seconds = hours * 3600 + minutes * 60
    return seconds if match[9] == b"+" else -seconds


def _duration_ms(text: bytes) -> int:
    match = _DURATION.fullmatch(text)
    if match is not None:
        return int(match[1]) * _UNIT_MS[match[2]]
    if _LONG_NUMBER.fullmatch(text):
        return _LATEST_MS + 1
    if _NEGATIVE.fullmatch(text):
        raise DelayError(f"header {DELIVER_AFTER}: {_shown(text)} is negative")
    raise DelayError(
        f"header {DELIVER_AFTER}: {_shown(text)} is not a whole number of milliseconds, nor one with a unit "
        "(10s, 5m, 2h, 1d)"
    )


def _not_a_time(text: bytes, why: str) -> DelayError:
    return DelayError(f"header {DELIVER_AT}: {_shown(text)} {why}")


def _too_far(name: str, text: bytes, max_delay_ms: int) -> DelayError:
    return DelayError(
        f"header {name}: {_shown(text)} is further ahead than the topic allows "
        f"(forebay.delay.max.ms={max_delay_ms})"
    )


def _shown(text: bytes) -> str:
    if len(text) > _SHOWN_BYTES_MAX:
        text = text[:_SHOWN_BYTES_MAX] + b"..."
    return repr(text.decode("utf-8", "replace"))
