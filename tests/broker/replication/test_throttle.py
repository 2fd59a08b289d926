"""How fast replicas are filled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.broker.replication.throttle import Throttle


def test_without_a_rate_nobody_waits() -> None:
    assert Throttle(None).wait_s(10**9, 0.0) == 0.0


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=200))
def test_over_time_the_rate_is_kept(sizes: list[int]) -> None:
    """Who waits as told takes at most the rate, and a second's worth more."""
    throttle, now_s, taken = Throttle(1_000), 0.0, 0
    for size in sizes:
        taken += size
        now_s += throttle.wait_s(size, now_s)
        assert taken <= 1_000 * (now_s + 1.0) + 1e-6


def test_what_was_not_used_is_not_saved_up() -> None:
    throttle = Throttle(1_000)
    throttle.wait_s(500, 0.0)
    assert throttle.wait_s(1_500, 100.0) == 0.5
