"""Positions to begin reading at: the values of `--from`.

A bare number is an offset, because people copy offsets from another tool's output. A time is anything that
cannot be mistaken for one: an ISO date, `@` and epoch milliseconds, or how long ago (`5m`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TypeAlias

from forebay.lazy import dataclass
from forebay.operations.client import CommandError


@dataclass(frozen=True, slots=True)
class Beginning:
    pass


@dataclass(frozen=True, slots=True)
class End:
    pass


@dataclass(frozen=True, slots=True)
class Offset:
    offset: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last N messages of each partition."""

    count: int


@dataclass(frozen=True, slots=True)
class Time:
    timestamp_ms: int


Position: TypeAlias = Beginning | End | Offset | Last | Time

TIME_HELP = "a time (2026-01-31T12:00), @ and epoch milliseconds, or how long ago (30s, 5m, 2h, 7d)"
POSITION_HELP = f"beginning, end, an offset, -N for the last N of each partition, {TIME_HELP}"
_AGO = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_OFFSET_MAX = 2**63 - 1


def parse_position(text: str, now_ms: int) -> Position:
    if text == "beginning":
        return Beginning()
    if text == "end":
        return End()
    if re.fullmatch(r"\d+", text) and int(text) <= _OFFSET_MAX:
        return Offset(int(text))
    if re.fullmatch(r"-\d+", text) and -int(text) <= _OFFSET_MAX:
        return Last(-int(text))
    try:
        return Time(parse_time(text, now_ms))
    except CommandError:
        raise CommandError(f"cannot begin at {text!r}: give {POSITION_HELP}") from None


def parse_time(text: str, now_ms: int) -> int:
    if ago := _AGO.fullmatch(text):
        return max(0, now_ms - int(ago[1]) * _UNIT_MS[ago[2]])
    if re.fullmatch(r"@\d{1,18}", text):
        return int(text[1:])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(f"{text!r} is no time: give {TIME_HELP}") from None
    # A date without a zone is in UTC, like every timestamp that these commands print.
    zoned = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0, round(zoned.timestamp() * 1000))
