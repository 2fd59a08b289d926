"""Slices of large work: one in a turn of the loop, and a pause where cores are short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from forebay.broker.net.scheduling.slices import NOBODY, SLICE_S, Slices
from forebay.broker.yielding.core_shortage import CoreShortage
from support.machines.enough_cores import no_shortage

STEPS = 20
ADA, ROOT = "User:ada", "User:root"


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
    slices = Slices(loop, crowded.thread_cpu, no_shortage(loop), ROOT.__eq__)

    def steps() -> Generator[None, None, str]:
        for _ in range(STEPS):
            crowded.work(SLICE_S)
            yield
        return "done"

    assert await slices.run(steps(), lambda: True) == "done"
    assert len(crowded.rests) == rests
    assert all(rest > (1 - part) * SLICE_S for rest in crowded.rests)


@pytest.mark.parametrize(("user", "rests"), [(ADA, True), (ROOT, False), (NOBODY, False)])
async def test_a_user_rests_who_has_had_many_slices_where_cores_are_short(user: str, rests: bool) -> None:
    crowded = CrowdedLoop(0.5)
    loop: Any = crowded
    shortage = CoreShortage(crowded.time, lambda: crowded.time() * 0.5)
    slices = Slices(loop, crowded.thread_cpu, shortage, ROOT.__eq__)

    def steps() -> Generator[None, None, None]:
        for _ in range(STEPS):
            crowded.work(SLICE_S)
            yield

    await slices.run(steps(), lambda: True, user)
    assert (max(crowded.rests) > 20 * SLICE_S) == rests


async def test_a_task_that_is_cancelled_passes_its_turn_on() -> None:
    loop = asyncio.get_running_loop()
    slices = Slices(loop, loop.time, no_shortage(loop), ROOT.__eq__)
    first, second = (asyncio.ensure_future(slices.next()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(60):
        await second
        await slices.next()
