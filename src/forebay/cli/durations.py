"""Times on the command line: 30m, 12h, 7d."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import click

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONG_MAX = 2**63 - 1
_DURATION = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")


class Duration(click.ParamType[int]):
    """An option with a duration; the command gets milliseconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        parts = _DURATION.fullmatch(value)
        if parts is None:
            self.fail(f"{value!r} is no time: write 30m, 12h or 7d", param, ctx)
        return min(int(parts[1]) * _UNITS_MS[parts[2]], _LONG_MAX)


def local_time(ms: int) -> str:
    """A moment for people, in the local time of this machine."""
    try:
        return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return "a time beyond the year 9999"
