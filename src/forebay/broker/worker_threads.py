"""Threads for blocking work that a coroutine waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


class WorkerThreads:
    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        self._loop = loop
        self._pool = pool

    async def run(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(self._pool, work)

    def close(self) -> None:
        """Blocks until the work under way has ended."""
        self._pool.shutdown(wait=True)


class LazyThreads:
    """Like `WorkerThreads`, made when there is work for the first time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, make_pool: Callable[[], Executor]) -> None:
        self._loop = loop
        self._make_pool = make_pool
        self._threads: WorkerThreads | None = None

    async def run(self, work: Callable[[], T]) -> T:
        if self._threads is None:
            self._threads = WorkerThreads(self._loop, self._make_pool())
        return await self._threads.run(work)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()
