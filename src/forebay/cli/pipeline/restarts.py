"""When a step that has failed is started again: what a steps file says, and how often it was done.

    restart: on-failure
    restart: {when: on-failure, times: 5, backoff: 10s}

A step goes on from its checkpoint, so that starting it again loses nothing and writes nothing twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from forebay.cli.client import CommandError
from forebay.cli.durations import Duration

NEVER, ON_FAILURE = WHEN = ("never", "on-failure")
TIMES = 5
BACKOFF = "10s"
BACKOFF_MS_MAX = 300_000
_NAMES = ("when", "times", "backoff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """How often, and after which pause; the pause doubles with each time, up to five minutes."""

    times: int = 0
    backoff_ms: int = 0

    def text(self) -> str:
        if not self.times:
            return NEVER
        return f"{ON_FAILURE}, {self.times} times in a row, after {self.backoff_ms / 1000:g} s or more"

    def pause_ms(self, failures: int) -> int | None:
        """How long to wait after so many failures in a row; None when the step has failed for good."""
        if failures > self.times:
            return None
        return min(self.backoff_ms << min(failures - 1, 30), max(self.backoff_ms, BACKOFF_MS_MAX))


NO_RESTART = Restart()


def restart_of(value: Any) -> Restart:
    """The setting under `restart:`; a CommandError says what may stand there."""
    given = {"when": value} if isinstance(value, str) else value
    if not isinstance(given, dict):
        raise CommandError(f"restart: {value!r} is neither {' nor '.join(WHEN)}")
    for name in given:
        if name not in _NAMES:
            raise CommandError(f"restart has no {name!r}: choose {', '.join(_NAMES)}")
    when = given.get("when", ON_FAILURE)
    if when not in WHEN:
        raise CommandError(f"restart: {when!r} is neither {' nor '.join(WHEN)}")
    times = given.get("times", TIMES)
    if not isinstance(times, int) or isinstance(times, bool) or times < 1:
        raise CommandError(f"restart: times is {times!r}: give a number of 1 or more")
    try:
        backoff_ms = Duration().convert(str(given.get("backoff", BACKOFF)), None, None)
    except click.BadParameter as error:
        raise CommandError(f"restart: backoff: {error.message}") from None
    return NO_RESTART if when == NEVER else Restart(times=times, backoff_ms=backoff_ms)
