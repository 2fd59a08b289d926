"""The start of a share group in a partition without state: `share.auto.offset.reset`."""

from __future__ import annotations

import re
from typing import NamedTuple

from forebay.config.values import Value

LATEST, EARLIEST, BY_DURATION = "latest", "earliest", "by_duration"

_LATEST_TIMESTAMP, _EARLIEST_TIMESTAMP = -1, -2
"""As in ListOffsets."""

_DURATION = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_DURATION_MS_MAX = 100 * 366 * 86_400_000


class OffsetReset(NamedTuple):
    strategy: str
    duration_ms: int = 0
    """How far back, with by_duration."""

    @staticmethod
    def parse(text: str) -> OffsetReset:
        """Raises ValueError with the valid values."""
        strategy, separator, rest = text.strip().partition(":")
        if strategy in (LATEST, EARLIEST) and not separator:
            return OffsetReset(strategy)
        if strategy == BY_DURATION and separator:
            return OffsetReset(BY_DURATION, parse_duration_ms(rest))
        raise ValueError("use latest, earliest or by_duration:<duration>, such as by_duration:PT1H30M")

    def timestamp(self, wall_ms: int) -> int:
        """The timestamp for ListOffsets that finds the first offset."""
        if self.strategy == BY_DURATION:
            return max(wall_ms - self.duration_ms, 0)
        return _LATEST_TIMESTAMP if self.strategy == LATEST else _EARLIEST_TIMESTAMP


def check_offset_reset(value: Value) -> None:
    OffsetReset.parse(str(value))


def parse_duration_ms(text: str) -> int:
    """Parse a duration in ISO 8601, PnDTnHnMn.nS; raises ValueError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration such as P1DT2H3M4.5S")
    days, hours, minutes, seconds = (
        int(found[part] or 0) for part in ("days", "hours", "minutes", "seconds")
    )
    fraction_ms = int((found["fraction"] or "").ljust(3, "0")[:3])
    duration_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
    if duration_ms > _DURATION_MS_MAX:
        raise ValueError(f"{text!r} is longer than a hundred years")
    return duration_ms
