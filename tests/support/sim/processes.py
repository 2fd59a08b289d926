"""Processes of a simulated world, and what their coroutines return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from forebay.sim.world.network import SimNetwork
from forebay.sim.world.process import SimProcess
from forebay.sim.world.virtual_time import World

T = TypeVar("T")


def process_on(world: World, network: SimNetwork, host: str) -> SimProcess:
    process = SimProcess(world, network, host, host)

    def fail(message: str, error: BaseException | None) -> None:
        world.fail(f"{host}: {message}: {error!r}")

    process.loop.on_failure = fail
    return process


def finish(world: World, process: SimProcess, make: Callable[[], Awaitable[T]], seconds: float = 60.0) -> T:
    """What a coroutine of a process returns, within so much virtual time."""
    results: list[T] = []

    async def run() -> None:
        results.append(await make())

    process.spawn(run)
    world.run_until(world.now + seconds, lambda: bool(results))
    assert world.breach is None, world.breach
    assert results, "it did not finish"
    return results[0]
