"""A simulated process: its loop, its threads and its place in the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.sim.world.loop import ProcessLoop, SimThreads
from forebay.sim.world.network import HostNetwork, SimNetwork
from forebay.sim.world.virtual_time import World


class SimProcess:
    """A process from its start to its end: a loop, and its kernel's resources."""

    def __init__(self, world: World, network: SimNetwork, host: str, name: str) -> None:
        self.loop = ProcessLoop(world, name)  # type: ignore[abstract]
        self.network = HostNetwork(network, self.loop, host)
        self._fabric = network
        self._entropy = world.chance(f"entropy/{name}")
        self._pools = 0
        self.slow_s: Callable[[str], float] = lambda _: 0.0
        """How long the threads of a pool of this name take at least, now."""

    def threads(self, workers: int, prefix: str) -> SimThreads:
        self._pools += 1
        return SimThreads(self.loop, workers, f"{prefix}/{self._pools}", lambda: self.slow_s(prefix))

    def entropy(self, size: int) -> bytes:
        return self._entropy.randbytes(size)

    def spawn(self, make: Callable[[], Any]) -> None:
        """Start a coroutine that `make` makes, inside the process."""
        self.loop.call_soon(lambda: self.loop.create_task(make()))

    def end(self) -> None:
        self._fabric.process_ended(self.loop)
        self.loop.kill()
