"""Time as a port: everything above asks a Clock, so that tests and the simulator own time."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path
from typing import Protocol

log = logging.getLogger(__name__)

STEP_MS_MAX = 60_000
"""A step of the wall clock up to this much forward is believed at once."""
DOUBT_MS = 3_600_000
"""A larger one is believed when it has lasted for this time."""


class Clock(Protocol):
    """Wall time may be set forward or back at any moment; only monotonic time tells how long things take."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since the epoch: what timestamps are made of."""

    def monotonic(self) -> float:
        """Seconds that only go forward, and go on while the machine sleeps: what deadlines are made of."""

    def thread_cpu(self) -> float:
        """Seconds of CPU that the calling thread has used. What has passed beyond that while it worked, it
        waited for a core, or for the interpreter."""

    def core_wait(self, thread: int) -> float:
        """Seconds in which a thread of this process, named by the system's number, was ready to run and had
        no core; 0 where the system does not tell."""

    def rest(self, seconds: float) -> None:
        """Let the calling thread sleep; never called on an event loop."""


def monotonic_ms(clock: Clock) -> int:
    return int(clock.monotonic() * 1000)


def _clock_of(platform: str) -> int:
    """The system's clock that only goes forward, and goes on while the machine sleeps, if there is one.

    macOS has it by the name of one that stands still on Linux. Python's own `time.monotonic` stands still on
    both.
    """
    if platform == "darwin":
        return time.CLOCK_MONOTONIC_RAW
    return getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


_CLOCK = _clock_of(sys.platform)


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(_CLOCK)

    def thread_cpu(self) -> float:
        return time.thread_time()

    def core_wait(self, thread: int) -> float:
        try:
            return int(Path(f"/proc/self/task/{thread}/schedstat").read_bytes().split()[1]) / 1e9
        except (OSError, IndexError):
            return 0.0

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


class TrustedTime:
    """Wall time for the age of what is stored: a clock that is set wrong for a while must delete nothing.

    A large step forward is not followed until it has lasted for an hour; then the clock was wrong before, and
    has been put right. Steps back are followed at once, since they only let things live longer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ms, self._monotonic = clock.now_ms(), clock.monotonic()
        self._doubted_since: float | None = None

    def now_ms(self) -> int:
        wall_ms, monotonic = self._clock.now_ms(), self._clock.monotonic()
        expected_ms = self._wall_ms + int((monotonic - self._monotonic) * 1000)
        if wall_ms - expected_ms > STEP_MS_MAX and self._doubts(wall_ms - expected_ms, monotonic):
            return expected_ms
        self._wall_ms, self._monotonic, self._doubted_since = wall_ms, monotonic, None
        return wall_ms

    def _doubts(self, step_ms: int, monotonic: float) -> bool:
        if self._doubted_since is None:
            self._doubted_since = monotonic
            log.warning(
                "the system clock was set forward; nothing is deleted for its age because of that, unless it "
                "stays so",
                extra={"step_ms": step_ms, "believed_after_ms": DOUBT_MS},
            )
        return (monotonic - self._doubted_since) * 1000 < DOUBT_MS
