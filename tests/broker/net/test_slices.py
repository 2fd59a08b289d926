"""Slices of large work: one in a turn of the loop, and a pause where cores are short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from forebay.broker.net.scheduling.slices import NOBODY, SLICE_S, Slices

STEPS = 20


class CrowdedLoop:
    """The running loop with a clock that moves as a test says, and a core for a part of that time."""

    def __init__(self, part: float) -> None:
        self._part = part
        self._now_s = 0.0
        self._cpu_s = 0.0
        self.rests: list[float] = []
        running = asyncio.get_running_loop()
        self.create_future = running.create_future
        self.call_soon = running.call_soon

    def time(self) -> float:
        return self._now_s

    def thread_cpu(self) -> float:
        return self._cpu_s

    def work(self, seconds: float) -> None:
        self._now_s += seconds
        self._cpu_s += seconds * self._part

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> None:
        self.rests.append(seconds)
        self._now_s += seconds
        self.call_soon(callback, *args)


@pytest.mark.parametrize(("part", "rests"), [(1.0, 0), (0.25, STEPS)])
async def test_a_loop_that_waits_for_a_core_rests_between_slices(part: float, rests: int) -> None:
    """Large work does not keep the loop from sleeping, so what is small finds it ready."""
    crowded = CrowdedLoop(part)
    loop: Any = crowded
    slices = Slices(loop, crowded.thread_cpu, lambda *_: 0.0)

    def steps() -> Generator[None, None, str]:
        for _ in range(STEPS):
            crowded.work(SLICE_S)
            yield
        return "done"

    assert await slices.run(steps(), lambda: True) == "done"
    assert len(crowded.rests) == rests
    assert all(rest > (1 - part) * SLICE_S for rest in crowded.rests)


async def test_a_user_is_charged_for_its_slices_and_for_nothing_else() -> None:
    crowded, charged = CrowdedLoop(1.0), list[tuple[str, float]]()
    loop: Any = crowded

    def charge(user: str, cpu_s: float) -> float:
        charged.append((user, cpu_s))
        return 0.3

    slices = Slices(loop, crowded.thread_cpu, charge)

    def steps() -> Generator[None, None, None]:
        for _ in range(STEPS):
            loop.call_soon(crowded.work, 0.005)  # somebody else's, in the same turn of the loop
            crowded.work(SLICE_S)
            yield

    await slices.run(steps(), lambda: True, "User:ada")
    assert crowded.rests == [0.3] * len(charged)
    await slices.run(steps(), lambda: True, NOBODY)
    assert len(crowded.rests) == len(charged), "nobody's work rests only where it waited itself"
    await asyncio.sleep(0)
    assert {user for user, _ in charged} == {"User:ada"}
    assert sum(cpu_s for _, cpu_s in charged) == pytest.approx(STEPS * SLICE_S)


async def test_a_task_that_is_cancelled_passes_its_turn_on() -> None:
    loop = asyncio.get_running_loop()
    slices = Slices(loop, loop.time, lambda *_: 0.0)
    first, second = (asyncio.ensure_future(slices.next()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(60):
        await second
        await slices.next()
