"""Slices of large work: one in a turn of the loop, and a pause where cores are short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

import pytest

from forebay.broker.net.scheduling.slices import SLICE_S, Slices

STEPS = 20


class Core:
    """What a thread has had of a core: a part of the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, part: float) -> None:
        self._time = loop.time
        self._part = part

    def thread_cpu(self) -> float:
        return self._time() * self._part


@pytest.mark.parametrize(("part", "pauses"), [(1.0, False), (0.25, True)])
async def test_a_loop_that_waits_for_a_core_rests_between_slices(
    part: float, pauses: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large work does not keep the loop from sleeping, so what is small finds it ready."""
    loop = asyncio.get_running_loop()
    slices = Slices(loop, Core(loop, part).thread_cpu)
    rests: list[float] = []
    call_later = loop.call_later

    def noted(seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        rests.append(seconds)
        return call_later(seconds, callback)

    monkeypatch.setattr(loop, "call_later", noted)

    def steps() -> Generator[None, None, str]:
        for _ in range(STEPS):
            end = loop.time() + SLICE_S
            while loop.time() < end:
                pass
            yield
        return "done"

    assert await slices.run(steps(), lambda: True) == "done"
    # On a busy machine a step may last so long that it and the next one rest together.
    assert len(rests) > STEPS // 2 if pauses else not rests
    assert all(rest >= 0.75 * SLICE_S for rest in rests)


async def test_a_task_that_is_cancelled_passes_its_turn_on() -> None:
    loop = asyncio.get_running_loop()
    slices = Slices(loop, loop.time)
    first, second = (asyncio.ensure_future(slices.next()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    async with asyncio.timeout(60):
        await second
        await slices.next()
