"""Users whose views take CPU while the event loop has no core rest, and others do not wait for them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forebay.broker.views.filter_threads import OTHER_BROKERS, FilterThreads
from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.broker.yielding.user_rests import UserRests
from forebay.clock import SystemClock
from forebay.core.views.turn import Turn
from forebay.errors import KafkaError
from support.machines.crowded_loop import CrowdedLoop

WORK_S = 0.02
TURN_S = 0.002


def work(turn: Turn) -> str:
    """Use so much CPU."""
    clock = SystemClock()
    end_s = clock.thread_cpu() + TURN_S
    while clock.thread_cpu() < end_s:
        pass
    return "done"


def filter_threads(part: float) -> FilterThreads:
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    shortage = CoreShortage(loop.time, lambda: loop.time() * part)
    return FilterThreads(loop, SystemClock(), shortage, pool, 1, lambda: 20, {"root"}.__contains__)


async def run(threads: FilterThreads, user: str) -> str:
    return await threads.run(user, b"view", work, lambda: True)


def rested_s(part: float, cpu_s: float = WORK_S, credit_s: float = 0.0) -> float:
    """How long a user rests whose work took this time, while the loop waits for a core for a part of it."""
    loop: Any = CrowdedLoop(1 - part)
    gone_on = list[str]()
    rests = UserRests[str](loop, loop.shortage(), gone_on.extend, lambda _: 80, credit_s=credit_s)
    rests.worked("ada", cpu_s)
    if not rests.keeps("ada", "more"):
        return 0.0
    began_s = loop.now
    while not gone_on:
        loop.wake()
    assert gone_on == ["more"] and not rests.keeps("ada", "still more")
    return float(loop.now - began_s)


def test_a_user_rests_for_several_times_as_long_as_its_views_took() -> None:
    assert rested_s(0.5) == pytest.approx(80 * WORK_S, abs=0.002)
    assert rested_s(0.5, 2 * WORK_S) == pytest.approx(160 * WORK_S, abs=0.002)


def test_a_user_rests_the_longer_the_more_the_loop_waits() -> None:
    assert rested_s(0.7) == pytest.approx(80 * WORK_S * 0.7 / 0.3, abs=0.002)
    assert rested_s(0.99) == pytest.approx(4.0, abs=0.002), "but not for ever"
    assert rested_s(0.005) == 0.0


async def test_the_next_turn_of_a_user_begins_when_its_rest_is_over() -> None:
    threads = filter_threads(0.5)
    assert await run(threads, "ada") == "done"
    ended_s = threads._rests._until_s["ada"]
    assert await run(threads, "ada") == "done"
    assert asyncio.get_running_loop().time() >= ended_s
    threads.close()


async def test_another_user_does_not_wait_for_it() -> None:
    threads, order = filter_threads(0.8), list[str]()

    async def note(user: str) -> None:
        await run(threads, user)
        order.append(user)

    await note("ada")
    await asyncio.gather(note("ada"), note("ada"), note("bob"))
    assert order == ["ada", "bob", "ada", "ada"]
    threads.close()


async def test_users_who_may_do_everything_and_brokers_rest_less() -> None:
    threads, left_s = filter_threads(0.5), dict[str, float]()
    for user in ("ada", "root", OTHER_BROKERS):
        await run(threads, user)
        left_s[user] = threads._rests._until_s[user] - asyncio.get_running_loop().time()
    assert left_s["ada"] > 4 * max(left_s["root"], left_s[OTHER_BROKERS])
    threads.close()


async def test_what_waits_for_the_end_of_a_rest_is_answered_when_the_broker_is_stopped() -> None:
    threads = filter_threads(0.8)
    await run(threads, "ada")
    waiting = asyncio.ensure_future(run(threads, "ada"))
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises(KafkaError):
        await waiting


def test_a_user_who_had_no_rest_for_a_while_need_not_rest_at_first() -> None:
    assert rested_s(0.5, WORK_S / 2, credit_s=1.0) == 0.0
    assert rested_s(0.5, 2 * WORK_S, credit_s=1.0) == pytest.approx(160 * WORK_S - 1.0, abs=0.002)


def test_credit_comes_back_with_time_and_nothing_is_kept_of_who_has_all_of_it() -> None:
    loop: Any = CrowdedLoop(0.5)
    rests = UserRests[str](loop, loop.shortage(), lambda _: None, lambda _: 80, credit_s=1.0)
    rests.worked("ada", WORK_S / 2)
    assert not rests.keeps("ada", "more")
    rests.worked("ada", WORK_S)
    assert rests.keeps("ada", "more")
    while loop.later:
        loop.wake()
    assert not rests._until_s
    rests.worked("ada", WORK_S / 2)
    assert not rests.keeps("ada", "more")
