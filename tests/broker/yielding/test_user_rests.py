"""Users whose views take CPU while the event loop has no core rest, and others do not wait for them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from forebay.broker.views.filter_threads import OTHER_BROKERS, FilterThreads
from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.clock import SystemClock
from forebay.core.views.turn import Turn
from forebay.errors import KafkaError

TURN_S = 0.002


class Shortage(CoreShortage):
    """The loop waits for a core for the same part of all time."""

    part = 0.0

    def __init__(self, part: float) -> None:
        self.part = part


def work(turn: Turn) -> str:
    """Use so much CPU."""
    clock = SystemClock()
    end_s = clock.thread_cpu() + TURN_S
    while clock.thread_cpu() < end_s:
        pass
    return "done"


def filter_threads(part: float) -> FilterThreads:
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(1)
    return FilterThreads(loop, SystemClock(), Shortage(part), pool, 1, lambda: 20, {"root"}.__contains__)


async def run(threads: FilterThreads, user: str) -> str:
    return await threads.run(user, b"view", work, lambda: True)


async def test_the_next_turn_of_a_user_begins_when_its_rest_is_over() -> None:
    threads = filter_threads(0.5)
    assert await run(threads, "ada") == "done"
    ended_s = asyncio.get_running_loop().time() + threads._rests._debts.left_s("ada")
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
        left_s[user] = threads._rests._debts.left_s(user)
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
