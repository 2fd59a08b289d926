"""Times on the command line: 30m, 12h, 7d."""

from __future__ import annotations

import re
import time
from typing import Any

import click

from forebay.cli.client import CommandError
from forebay.operations.messages.positions import parse_time

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


def time_option(text: str | None) -> int | None:
    """The milliseconds that an option means, if it is given; click reports an invalid time."""
    if text is None:
        return None
    try:
        return parse_time(text, time.time_ns() // 1_000_000)
    except CommandError as error:
        raise click.UsageError(str(error)) from None
