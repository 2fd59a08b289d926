"""When a partition that is copied is held, and closed."""

from __future__ import annotations

from itertools import product

from forebay.core.record_moves.closing import (
    DRAIN_S_MAX,
    GAIN_S,
    HOLD_S_MAX,
    REST_MAX,
    ClosingStep,
    Held,
    Pace,
    Progress,
    next_step,
)


def step(held: Held = Held.NOT, rest: int = 0, **what: bool) -> ClosingStep:
    more = {"has_more": bool(rest), "in_transaction": False, "is_followed": True, **what}
    return next_step(Progress(held, rest, **more))


def test_the_bulk_is_copied_while_the_partition_is_open() -> None:
    assert step(rest=REST_MAX + 1) is ClosingStep.COPY
    assert step(rest=REST_MAX + 1, has_more=False) is ClosingStep.WAIT, "a transaction is open for long"
    assert step(rest=REST_MAX) is ClosingStep.HOLD
    assert step(rest=REST_MAX + 1, is_losing=True) is ClosingStep.HOLD, "it would never be little"


def test_after_a_hold_that_was_given_up_producers_go_on_for_a_while() -> None:
    assert step(rest=3, is_pausing=True) is ClosingStep.COPY
    assert step(rest=0, is_pausing=True) is ClosingStep.WAIT
    assert step(rest=3, is_pausing=True, in_transaction=True) is ClosingStep.COPY


def test_open_transactions_end_first() -> None:
    assert step(rest=3, in_transaction=True) is ClosingStep.DRAIN
    assert step(Held.DRAINING, 3, in_transaction=True) is ClosingStep.COPY
    assert step(Held.DRAINING, 3, in_transaction=True, has_more=False) is ClosingStep.WAIT
    assert step(Held.DRAINING, 3) is ClosingStep.HOLD


def test_it_is_closed_only_when_it_takes_nothing_and_all_is_copied() -> None:
    for held, rest, more in product(Held, (0, 1, REST_MAX + 1), product((False, True), repeat=5)):
        progress = Progress(held, rest, *more)
        is_over = held is Held.FULLY and not rest and progress.is_followed
        assert (next_step(progress) is ClosingStep.FINISH) is is_over
    assert step(Held.FULLY, 1) is ClosingStep.COPY
    assert step(Held.FULLY, 1, has_more=False) is ClosingStep.WAIT, "not all is committed"


def test_a_large_partition_is_not_held_while_it_is_copied_faster_than_it_grows() -> None:
    pace = Pace(rest=50 * REST_MAX, now_s=100.0)
    assert not pace.is_losing(51 * REST_MAX, 101.0), "too early to tell"
    assert not pace.is_losing(40 * REST_MAX, 101.0 + GAIN_S)
    assert pace.is_losing(41 * REST_MAX, 102.0 + 2 * GAIN_S)
    assert pace.is_losing(0, 103.0 + 2 * GAIN_S), "until it is looked at again"
    assert not pace.is_losing(30 * REST_MAX, 104.0 + 3 * GAIN_S)


def test_open_transactions_get_more_time_after_each_attempt_that_failed() -> None:
    pace = Pace(rest=0, now_s=0.0)
    waits = [pace.drain_s]
    while len(waits) < 20:
        pace.drain_failed()
        waits.append(pace.drain_s)
    assert waits[:3] == [HOLD_S_MAX, 2 * HOLD_S_MAX, 4 * HOLD_S_MAX]
    assert waits[-1] == DRAIN_S_MAX
