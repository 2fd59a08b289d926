"""The time that machines are given in tests: monotonic time that a test counts, and wall time beside it."""

from __future__ import annotations

from forebay.core.step import Now

WALL_AHEAD_MS = 1_700_000_000_000
"""How far wall time is ahead of monotonic time, until a test sets the clock."""


def at(ms: int, wall_ahead_ms: int = WALL_AHEAD_MS, doubted_ms: int = 0) -> Now:
    """`doubted_ms` is what the broker does not believe of its wall time."""
    return Now(ms, ms + wall_ahead_ms, ms + wall_ahead_ms - doubted_ms)
