"""Threads that filter: how long they rest, and what only one of them does at a time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from forebay.broker.views.filter_threads import FilterThreads
from forebay.broker.yielding.pace import Pace
from forebay.clock import SystemClock
from forebay.core.views.turn import Turn, UnpackLater
from forebay.errors import KafkaError
from support.machines.enough_cores import no_shortage
from support.machines.manual_clock import ManualClock

THREADS = 3


class BusyMachine(ManualClock):
    """A machine on which a thread gets a part of the time, and on which rests are noted."""

    def __init__(self, part: float) -> None:
        super().__init__()
        self._part = part
        self.rests: list[float] = []

    def thread_cpu(self) -> float:
        return self._monotonic * self._part

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)


def rest_after(part: float, work_ms: int, *, yields: bool) -> float:
    clock = BusyMachine(part)
    pace = Pace(clock, yields=yields)
    clock.advance(work_ms)
    pace.spend()
    (rest,) = clock.rests
    return rest


def test_a_thread_that_waited_for_a_core_rests_for_longer() -> None:
    alone, crowded = rest_after(1.0, 10, yields=True), rest_after(0.25, 10, yields=True)
    assert crowded - alone > 0.01, "as long again as it has waited, at least"
    assert rest_after(0.0, 1_000, yields=True) - alone < 0.1, "but not for ever"


def test_one_that_may_wait_for_a_disk_rests_as_ever() -> None:
    assert rest_after(0.25, 10, yields=False) == rest_after(1.0, 10, yields=False)


async def test_one_turn_at_a_time_unpacks_much() -> None:
    under_way, most, lock = 0, 0, threading.Lock()

    def work(turn: Turn) -> None:
        nonlocal under_way, most
        unpack(turn)
        unpack(turn)  # which it may, once more
        with lock:
            under_way += 1
            most = max(most, under_way)
        SystemClock().rest(0.02)
        with lock:
            under_way -= 1

    threads = filter_threads()
    await asyncio.gather(*(threads.run("ada", b"view", work, lambda: True) for _ in range(3 * THREADS)))
    assert most == 1
    threads.close()


async def test_who_waits_to_unpack_much_keeps_no_thread_and_ends_when_the_broker_is_stopped() -> None:
    threads = filter_threads()
    has_it, is_over = threading.Event(), threading.Event()

    def keep(turn: Turn) -> None:
        unpack(turn)
        has_it.set()
        is_over.wait(60)

    keeping = asyncio.ensure_future(threads.run("ada", b"view", keep, lambda: True))
    await asyncio.to_thread(has_it.wait, 60)
    waiting = [
        asyncio.ensure_future(threads.run("ada", b"view", unpack, lambda: True)) for _ in range(2 * THREADS)
    ]
    async with asyncio.timeout(60):
        await threads.run("bob", b"other", lambda turn: None, lambda: True)
    assert not any(each.done() for each in waiting)
    threads.stop()
    is_over.set()
    threads.close()
    assert not threads.is_late
    outcomes = await asyncio.gather(keeping, *waiting, return_exceptions=True)
    assert all(isinstance(each, KafkaError) for each in outcomes[1:])


def unpack(turn: Turn) -> None:
    if not turn.may_unpack_much():
        raise UnpackLater


def filter_threads() -> FilterThreads:
    loop, pool = asyncio.get_running_loop(), ThreadPoolExecutor(THREADS)
    return FilterThreads(loop, SystemClock(), no_shortage(loop), pool, THREADS, lambda: 20, lambda _: False)
