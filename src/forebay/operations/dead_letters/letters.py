"""Dead letters as the commands see them: read from a message's headers (KIP-1191), and filtered.

A record's own headers come first in its dead letter. So the last header of each name is about the letter, and
an earlier one belongs to the record: it may have been a dead letter itself.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from forebay.lazy import dataclass
from forebay.operations.client import CommandError
from forebay.operations.messages.message_formats import Line, iso_time, json_bytes, json_headers

PREFIX = "__dlq.errors."
TOPIC, PARTITION, OFFSET = "topic", "partition", "offset"
GROUP, DELIVERY_COUNT, MESSAGE = "group", "delivery.count", "message"
_NAMES = {PREFIX + name: name for name in (TOPIC, PARTITION, OFFSET, GROUP, DELIVERY_COUNT, MESSAGE)}

Headers = tuple[tuple[str, bytes | None], ...]


class Letter(NamedTuple):
    """A message of a dead-letter topic, and where it came from."""

    line: Line
    """The message in the dead letter topic."""
    topic: str
    partition: int
    offset: int
    group: str | None
    deliveries: int | None
    reason: str | None
    headers: Headers
    """The headers of the record that was given up."""

    @property
    def at(self) -> str:
        """Its place in the dead letter topic, in the form of `--at`."""
        return f"{self.line.partition}:{self.line.offset}"

    @property
    def source(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def is_copy(self) -> bool:
        """True if the record is in it. One without key, value and headers looks as if it were not."""
        return self.line.key is not None or self.line.value is not None or bool(self.headers)


def letter_of(line: Line) -> Letter | None:
    """None for a message that is not a dead letter."""
    own: list[tuple[str, bytes | None]] = []
    about: dict[str, bytes] = {}
    for name, value in reversed(line.headers):
        known = _NAMES.get(name)
        if known is None or known in about or value is None:
            own.append((name, value))
        else:
            about[known] = value
    partition, offset = _number(about.get(PARTITION)), _number(about.get(OFFSET))
    topic = _text(about.get(TOPIC))
    if not topic or partition is None or offset is None:
        return None
    return Letter(
        line=line,
        topic=topic,
        partition=partition,
        offset=offset,
        group=_text(about.get(GROUP)),
        deliveries=_number(about.get(DELIVERY_COUNT)),
        reason=_text(about.get(MESSAGE)),
        headers=tuple(reversed(own)),
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and re.fullmatch(rb"\d{1,18}", value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Selects letters for a command. None or empty allows all."""

    group: str | None = None
    source: str | None = None
    source_partitions: frozenset[int] = frozenset()
    reason: str | None = None
    since_ms: int | None = None
    at: frozenset[tuple[int, int]] = frozenset()

    def matches(self, letter: Letter) -> bool:
        line = letter.line
        return (
            self.group in (None, letter.group)
            and self.source in (None, letter.topic)
            and (not self.source_partitions or letter.partition in self.source_partitions)
            and (self.reason is None or self.reason.lower() in (letter.reason or "").lower())
            and (self.since_ms is None or line.timestamp_ms >= self.since_ms)
            and (not self.at or (line.partition, line.offset) in self.at)
        )


def source_of(text: str | None) -> tuple[str | None, frozenset[int]]:
    """The topic and the partitions that TOPIC or TOPIC:0,1 stand for."""
    if text is None:
        return None, frozenset()
    match = re.fullmatch(r"([^:]+)(?::(\d+(?:,\d+)*))?", text)
    if match is None:
        raise CommandError(f"{text!r} is not TOPIC or TOPIC:0,1", exit_code=2)
    return match[1], frozenset(int(number) for number in (match[2] or "").split(",") if number)


def place_of(text: str) -> tuple[int, int]:
    """The partition and the offset in 0:17."""
    match = re.fullmatch(r"(\d{1,9}):(\d{1,18})", text)
    if match is None:
        raise CommandError(f"{text!r} is not PARTITION:OFFSET, such as 0:17", exit_code=2)
    return int(match[1]), int(match[2])


HEADINGS = ("AT", "WHEN", "SOURCE", "GROUP", "DELIVERIES", "REASON")


def table_row(letter: Letter) -> list[object]:
    when = iso_time(letter.line.timestamp_ms)
    return [letter.at, when, letter.source, letter.group, letter.deliveries, letter.reason]


def json_row(letter: Letter) -> dict[str, Any]:
    return {
        "partition": letter.line.partition,
        "offset": letter.line.offset,
        "timestamp": letter.line.timestamp_ms,
        "source": {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset},
        "group": letter.group,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
    }


def json_contents(letter: Letter) -> dict[str, Any]:
    return {
        "copied": letter.is_copy,
        **json_bytes("key", letter.line.key),
        **json_bytes("value", letter.line.value),
        "headers": json_headers(letter.headers),
    }
