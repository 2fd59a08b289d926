"""Users rest the longer the more CPU they took and the shorter cores are, and not where there are enough."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.broker.yielding.core_shortage import RestDebts, RestRule
from support.machines.crowded_loop import CrowdedLoop

WORK_S = 0.02
RULE = RestRule(times=80, rest_s_max=4.0)
WITH_CREDIT = RULE._replace(credit_s=1.0)


def debts_of(loop: Any, rule: RestRule = RULE) -> RestDebts:
    return RestDebts(loop, loop.shortage(), lambda _: rule)


def rest_s(part: float, cpu_s: float = WORK_S, rule: RestRule = RULE) -> float:
    """How long a user rests who took this time, while the loop waits for a core for a part of it."""
    debts = debts_of(CrowdedLoop(1 - part), rule)
    debts.worked("ada", cpu_s)
    return debts.left_s("ada")


def test_a_user_rests_for_several_times_as_long_as_it_was_worked_for() -> None:
    assert rest_s(0.5) == pytest.approx(80 * WORK_S)
    assert rest_s(0.5, 2 * WORK_S) == pytest.approx(160 * WORK_S)


def test_a_user_rests_the_longer_the_more_the_loop_waits() -> None:
    assert rest_s(0.6) == pytest.approx(80 * WORK_S * 0.6 / 0.4)
    assert rest_s(0.005) == 0.0


def test_a_rest_has_an_end_however_much_was_done_meanwhile() -> None:
    debts = debts_of(CrowdedLoop(0.01))
    for _ in range(3):  # by several threads, or for requests that were under way
        debts.worked("ada", WORK_S)
    assert debts.left_s("ada") == pytest.approx(4.0)
    assert debts.left_s("bob") == 0.0


def test_a_user_who_had_no_rest_for_a_while_need_not_rest_at_first() -> None:
    assert rest_s(0.5, WORK_S / 2, WITH_CREDIT) == 0.0
    assert rest_s(0.5, 2 * WORK_S, WITH_CREDIT) == pytest.approx(160 * WORK_S - 1.0)


def test_many_small_pieces_count_as_much_as_a_large_one() -> None:
    debts = debts_of(CrowdedLoop(0.5), WITH_CREDIT)
    for _ in range(20):
        debts.worked("ada", WORK_S / 10)
    assert debts.left_s("ada") == pytest.approx(160 * WORK_S - 1.0)


def test_credit_comes_back_with_time_and_nothing_is_kept_of_who_has_all_of_it() -> None:
    loop: Any = CrowdedLoop(0.5)
    debts = debts_of(loop, WITH_CREDIT)
    debts.worked("ada", WORK_S / 2)
    assert debts.left_s("ada") == 0.0
    debts.worked("ada", WORK_S)
    assert debts.left_s("ada") > 0.0
    while loop.later:
        loop.wake()
    assert not debts._until_s
    debts.worked("ada", WORK_S / 2)
    assert debts.left_s("ada") == 0.0
