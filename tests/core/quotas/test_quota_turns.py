"""Connections that share a quota take turns, whatever they ask for and however fast they come back."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heappop, heappush

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.quotas.token_bucket import TokenBucket
from forebay.core.quotas.turns import WAITING_MAX, YIELD_S, Turns

BOUND = 1000.0
FAST, SLOW, GONE = 1, 2, 3


def shared_bucket() -> TokenBucket:
    bucket = TokenBucket(BOUND, 0.0, burst_s=10.0, debt_s_max=30.0)
    bucket.take(10 * BOUND, 0.0)
    return bucket


def told(clients: dict[int, tuple[float, float]], seconds: float) -> tuple[Counter[int], float]:
    """How often each client was served, and how much all got. `clients`: what each asks for, and how long
    after its wait it comes back."""
    bucket, served, used = shared_bucket(), Counter[int](), 0.0
    coming = [(0.0, who) for who in clients]
    heapify(coming)
    while coming[0][0] < seconds:
        now, who = heappop(coming)
        amount, latency = clients[who]
        amount = min(amount, bucket.share(now))
        taken, wait_s = bucket.take_turn(who, amount, now)
        served[who] += taken
        used += amount if taken else 0.0
        heappush(coming, (now + wait_s + latency, who))
    return served, used


def test_small_answers_of_one_do_not_keep_large_ones_of_another_waiting() -> None:
    served, _ = told({FAST: (100.0, 0.0001), SLOW: (10 * BOUND, 0.0001)}, 60.0)
    assert served[SLOW] >= 10 and served[FAST] >= 10, served


def test_one_that_comes_late_has_its_turn() -> None:
    """As a client that waits by itself, beside some whose next request is there when they are read again."""
    clients = {FAST: (10 * BOUND, 0.0), SLOW: (10 * BOUND, YIELD_S / 2), 5: (10 * BOUND, 0.0)}
    served, _ = told(clients, 300.0)
    assert max(served.values()) <= min(served.values()) + 2, served


@given(
    st.dictionaries(
        st.integers(1, 9),
        st.tuples(st.floats(1.0, 20_000.0), st.floats(0.001, 0.9 * YIELD_S)),
        min_size=1,
        max_size=6,
    )
)
def test_all_are_served_and_together_they_stay_within_the_quota(
    clients: dict[int, tuple[float, float]],
) -> None:
    served, used = told(clients, 60.0)
    assert set(served) == set(clients) and all(served.values()), served
    assert used <= BOUND * (60.0 + 1.0) * (1 + 1e-6), "what comes in that time, and one answer"


def test_what_is_left_is_given_and_at_least_a_second_s_worth() -> None:
    bucket = TokenBucket(BOUND, 0.0, burst_s=10.0, debt_s_max=30.0)
    assert bucket.share(0.0) == 10 * BOUND
    bucket.take(4 * BOUND, 0.0)
    assert bucket.share(0.0) == 6 * BOUND
    bucket.take(8 * BOUND, 0.0)
    assert bucket.share(0.0) == BOUND


def test_who_owes_waits_until_nothing_is_owed_and_not_longer() -> None:
    bucket = shared_bucket()
    taken, wait_s = bucket.take_turn(FAST, 2 * BOUND, 0.0)
    assert taken and wait_s == pytest.approx(2.0)
    taken, wait_s = bucket.take_turn(SLOW, 10 * BOUND, 0.5)
    assert not taken and wait_s == pytest.approx(1.5)
    assert bucket.take_turn(SLOW, 1.0, 0.5 + wait_s)[0], "the wait was exactly as long as it takes"


def test_those_that_were_refused_come_first_in_their_order() -> None:
    turns = Turns()
    for who in (SLOW, GONE):
        turns.refuse(who, 1.0)
    assert not turns.has_turn(FAST, 1.0)
    assert turns.has_turn(SLOW, 1.0)
    turns.serve(SLOW)
    assert not turns.has_turn(SLOW, 1.0), "GONE has waited for longer"
    assert turns.has_turn(GONE, 1.0)


def test_one_that_is_refused_again_keeps_its_place() -> None:
    turns = Turns()
    turns.refuse(SLOW, 1.0)
    turns.refuse(FAST, 1.0)
    turns.refuse(SLOW, 2.0)
    assert not turns.has_turn(FAST, 2.0) and turns.has_turn(SLOW, 2.0)


def test_one_that_does_not_come_in_time_loses_its_place() -> None:
    turns = Turns()
    turns.refuse(GONE, 1.0)
    assert not turns.has_turn(FAST, 1.0 + YIELD_S / 2)
    assert turns.has_turn(FAST, 1.0 + YIELD_S)
    assert len(turns) == 0


def test_one_alone_has_always_its_turn() -> None:
    turns = Turns()
    for now in range(3):
        turns.refuse(FAST, now)
        assert turns.has_turn(FAST, now)
        turns.serve(FAST)


def test_those_that_never_come_back_are_few() -> None:
    turns = Turns()
    for who in range(WAITING_MAX * 3):
        turns.refuse(who, 1.0)
    assert len(turns) == WAITING_MAX
