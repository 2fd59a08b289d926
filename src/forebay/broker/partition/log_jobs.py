"""Slow work that is done in threads beside the loop; its results are handled on the loop.

Nothing is awaited: a job comes with a callback for its result. When the broker stops, started jobs are
finished and their results handled before the logs are closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class LogJobs:
    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        self._loop = loop
        self._pool = pool
        self._running: dict[Future[Any], Callable[[Future[Any]], None]] = {}
        self.closed = False

    def run(self, work: Callable[[], T], done: Callable[[Future[T]], None]) -> None:
        """Do `work` in a thread, then call `done` on the loop with its outcome. Not after `close`."""
        assert not self.closed, "the threads have ended"
        future = self._pool.submit(work)
        self._running[future] = done
        future.add_done_callback(self._report)

    def _report(self, future: Future[Any]) -> None:
        """Runs in the thread."""
        self._loop.call_soon_threadsafe(self._finish, future)

    def _finish(self, future: Future[Any]) -> None:
        done = self._running.pop(future, None)
        if done is not None:
            done(future)

    def close(self) -> None:
        """Wait for what was begun, and take it up. Blocks."""
        self.closed = True
        self._pool.shutdown(wait=True)
        for future in list(self._running):
            self._finish(future)
