"""Requests that are handled in several turns of the loop: each turn is timed, and nothing else changes."""

from __future__ import annotations

import asyncio

import pytest

from forebay.broker.net.scheduling.watched_steps import WatchedSteps


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_steps_that_take_long_are_reported_and_waits_are_not() -> None:
    clock, reported = Clock(), list[float]()

    async def work() -> str:
        clock.now += 0.1
        await asyncio.sleep(0)
        clock.now += 0.5
        await asyncio.sleep(0)
        clock.now += 0.3
        return "done"

    async def others() -> None:
        for _ in range(3):
            clock.now += 10
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    assert await WatchedSteps(work(), clock, 0.25, reported.append) == "done"
    await beside
    assert reported == pytest.approx([0.5, 0.3])


async def test_errors_and_cancellations_pass_through() -> None:
    clock, reported, seen = Clock(), list[float](), list[str]()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            clock.now += 1
            raise

    async def broken() -> None:
        await asyncio.sleep(0)
        clock.now += 1
        raise ValueError("broken")

    async def watched() -> None:
        await WatchedSteps(work(), clock, 0.25, reported.append)

    task = asyncio.ensure_future(watched())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ValueError, match="broken"):
        await WatchedSteps(broken(), clock, 0.25, reported.append)
    assert (seen, reported) == (["cancelled"], [1, 1])
