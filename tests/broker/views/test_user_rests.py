"""Users whose views take CPU while the event loop has no core rest, and others do not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import pytest

from forebay.broker.views.filter_threads import FilterThreads
from forebay.broker.views.user_rests import CoreShortage, UserRests
from forebay.clock import SystemClock
from forebay.core.views.turn import Turn
from forebay.errors import KafkaError

WORK_S = 0.02


class CrowdedMachine(SystemClock):
    """A machine on which the loop waits for a core for a part of the time."""

    def __init__(self, part: float) -> None:
        self._part = part

    def core_wait(self, thread: int) -> float:
        assert SystemClock.core_wait(self, thread) >= 0
        return self.monotonic() * self._part


def work(turn: Turn) -> str:
    """Use so much CPU."""
    clock = SystemClock()
    end_s = clock.thread_cpu() + WORK_S
    while clock.thread_cpu() < end_s:
        pass
    return "done"


def filter_threads(part: float) -> FilterThreads:
    pool = ThreadPoolExecutor(1)
    return FilterThreads(asyncio.get_running_loop(), CrowdedMachine(part), pool, 1, lambda: 20)


async def run(threads: FilterThreads, user: str) -> str:
    return await threads.run(user, b"view", work, lambda: True)


class ManualLoop:
    """Timers, and time that passes as a test says."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay_s: float, callback: Callable[..., None], *args: Any) -> None:
        self._timers.append((self.now_s + delay_s, partial(callback, *args)))

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self._timers if timer[0] <= self.now_s]
        self._timers = [timer for timer in self._timers if timer not in due]
        for _, callback in due:
            callback()


def rested_s(part: float, cpu_s: float = WORK_S) -> float:
    """How long a user rests whose views took this time, while the loop waits for a core for a part of it."""
    loop, gone_on = ManualLoop(), list[str]()
    shortage = CoreShortage(loop.time, lambda: loop.now_s * part)
    rests = UserRests[str](cast("asyncio.AbstractEventLoop", loop), shortage, gone_on.extend)
    loop.pass_time(0.1)
    rests.worked("ada", cpu_s)
    if not rests.keeps("ada", "more"):
        return 0.0
    began_s = loop.now_s
    while not gone_on:
        loop.pass_time(0.001)
    assert gone_on == ["more"] and not rests.keeps("ada", "still more")
    return loop.now_s - began_s


def test_a_user_rests_for_several_times_as_long_as_its_views_took() -> None:
    assert rested_s(0.5) == pytest.approx(10 * WORK_S, abs=0.002)
    assert rested_s(0.5, 2 * WORK_S) == pytest.approx(20 * WORK_S, abs=0.002)


def test_a_user_rests_the_longer_the_more_the_loop_waits() -> None:
    assert rested_s(0.7) == pytest.approx(10 * WORK_S * 0.7 / 0.3, abs=0.002)
    assert rested_s(0.99) == pytest.approx(1.0, abs=0.002), "but not for ever"
    assert rested_s(0.01) == 0.0


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


async def test_what_waits_for_the_end_of_a_rest_is_answered_when_the_broker_is_stopped() -> None:
    threads = filter_threads(0.8)
    await run(threads, "ada")
    waiting = asyncio.ensure_future(run(threads, "ada"))
    await asyncio.sleep(0)
    threads.close()
    with pytest.raises(KafkaError):
        await waiting


def test_the_shortage_of_cores_is_that_of_late() -> None:
    now_s = waited_s = 0.0
    shortage = CoreShortage(lambda: now_s, lambda: waited_s)
    assert shortage.part == 0
    now_s, waited_s = 0.1, 0.05
    assert shortage.part == pytest.approx(0.5)
    now_s, waited_s = 0.101, 0.051
    assert shortage.part == pytest.approx(0.5), "one millisecond says nothing"
    now_s = 0.2
    assert shortage.part == pytest.approx(0.01)
    now_s, waited_s = 0.3, 10.0
    assert shortage.part < 1


def test_the_system_tells_how_long_a_thread_waited() -> None:
    assert SystemClock().core_wait(2**30) == 0.0, "of a thread that is not there"
