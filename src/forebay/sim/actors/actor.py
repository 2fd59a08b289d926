"""The base of the workload's actors: its own client, and retries."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeVar

from forebay.sim.actors.client import Client, Failed
from forebay.sim.models.messages import Model

T = TypeVar("T")

_RETRY_S = (0.02, 0.4)


class Actor(ABC):
    def __init__(self, client: Client, model: Model) -> None:
        self.name = client.name
        self.client = client
        self.model = model
        self.world = client.loop.world
        self.chance = self.world.chance(f"actor/{client.name}")
        self.stopping = False
        """Set when it should finish its work and begin nothing new."""
        self.calm = False
        """Set when all faults are over, and it should cause none itself."""
        self.done = False

    async def run(self) -> None:
        await self.act()
        self.done = True

    @abstractmethod
    async def act(self) -> None:
        """Act until `stopping` is set."""

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(self.chance.expovariate(1.0) * seconds)

    async def retry(self, attempt: Callable[[], Awaitable[T]], forget: Callable[[], None] | None = None) -> T:
        """Try until it works; `forget` is called before another attempt."""
        while True:
            try:
                return await attempt()
            except Failed:
                if forget is not None:
                    forget()
                await asyncio.sleep(self.chance.uniform(*_RETRY_S))

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.world.now * 1000)
