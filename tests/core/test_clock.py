"""The time by which stored things grow old: a clock that is set wrong for a while deletes nothing."""

from __future__ import annotations

import pytest

from forebay.clock import DOUBT_MS, STEP_MS_MAX, TrustedTime
from support.machines.manual_clock import ManualClock

HOUR_MS = 3_600_000


def test_trusted_time_goes_with_the_clock() -> None:
    clock = ManualClock()
    trusted = TrustedTime(clock)
    for ms in (0, 1, 250, HOUR_MS, 1000 * HOUR_MS):
        clock.advance(ms)
        assert trusted.now_ms() == clock.now_ms()


@pytest.mark.parametrize("step_ms", [STEP_MS_MAX, 1, -1, -HOUR_MS, -100_000 * HOUR_MS])
def test_small_steps_and_steps_back_are_followed_at_once(step_ms: int) -> None:
    clock = ManualClock()
    trusted = TrustedTime(clock)
    clock.step(step_ms)
    assert trusted.now_ms() == clock.now_ms()
    clock.advance(5_000)
    assert trusted.now_ms() == clock.now_ms()


def test_a_large_step_forward_that_is_taken_back_is_never_seen() -> None:
    clock = ManualClock(1_000_000)
    trusted = TrustedTime(clock)
    clock.step(1000 * HOUR_MS)
    assert trusted.now_ms() == 1_000_000
    clock.advance(DOUBT_MS - 1)
    assert trusted.now_ms() == 1_000_000 + DOUBT_MS - 1
    clock.step(-1000 * HOUR_MS)
    assert trusted.now_ms() == clock.now_ms() == 1_000_000 + DOUBT_MS - 1


def test_a_large_step_forward_that_lasts_is_believed() -> None:
    """The clock was wrong before it, or nothing would ever expire again."""
    clock = ManualClock()
    trusted = TrustedTime(clock)
    clock.step(1000 * HOUR_MS)
    trusted.now_ms()
    clock.advance(DOUBT_MS)
    assert trusted.now_ms() == clock.now_ms()


def test_after_a_step_was_taken_back_the_next_one_is_doubted_as_long() -> None:
    clock = ManualClock(0)
    trusted = TrustedTime(clock)
    for _ in range(3):
        clock.step(HOUR_MS)
        trusted.now_ms()
        clock.advance(DOUBT_MS // 2)
        clock.step(-HOUR_MS)
        assert trusted.now_ms() == clock.now_ms()
