"""When a partition that is copied is held, and closed."""

from __future__ import annotations

from itertools import product

from forebay.core.moves.closing import REST_MAX, Held, Progress, Step, next_step


def step(held: Held = Held.NOT, rest: int = 0, **what: bool) -> Step:
    more = {"has_more": bool(rest), "in_transaction": False, **what}
    return next_step(Progress(held, rest, **more))


def test_the_bulk_is_copied_while_the_partition_is_open() -> None:
    assert step(rest=REST_MAX + 1) is Step.COPY
    assert step(rest=REST_MAX + 1, has_more=False) is Step.WAIT, "a transaction is open for long"
    assert step(rest=REST_MAX) is Step.HOLD
    assert step(rest=REST_MAX + 1, is_losing=True) is Step.HOLD, "it would never be little"


def test_after_a_hold_that_was_given_up_producers_go_on_for_a_while() -> None:
    assert step(rest=3, is_pausing=True) is Step.COPY
    assert step(rest=0, is_pausing=True) is Step.WAIT
    assert step(rest=3, is_pausing=True, in_transaction=True) is Step.COPY


def test_open_transactions_end_first() -> None:
    assert step(rest=3, in_transaction=True) is Step.DRAIN
    assert step(Held.DRAINING, 3, in_transaction=True) is Step.COPY
    assert step(Held.DRAINING, 3, in_transaction=True, has_more=False) is Step.WAIT
    assert step(Held.DRAINING, 3) is Step.HOLD


def test_it_is_closed_only_when_it_takes_nothing_and_all_is_copied() -> None:
    for held, rest, more in product(Held, (0, 1, REST_MAX + 1), product((False, True), repeat=4)):
        is_over = held is Held.FULLY and not rest
        assert (next_step(Progress(held, rest, *more)) is Step.FINISH) is is_over
    assert step(Held.FULLY, 1) is Step.COPY
    assert step(Held.FULLY, 1, has_more=False) is Step.WAIT, "not all is committed"
