"""Blocking calls for an event loop: one thread runs them one after the other.

A task that waits for a call can be cancelled, the call cannot. `run` leaves it behind: it ends in the thread,
before any later call. `run_to_end` waits for it all the same, for callers that must know its outcome before
they clean up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from forebay.client.errors import ClientError

T = TypeVar("T")


class CallThread:
    def __init__(self, owner: str) -> None:
        """`owner`: the owner of these calls, for messages."""
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"forebay-{owner}")
        self._under_way = 0
        self._shut = False

    @property
    def is_idle(self) -> bool:
        """True if no call is under way, nor one that was left behind: the loop may touch what they use."""
        return self._under_way == 0

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        if self._shut:
            raise ClientError(f"the {self._owner} is closed", fatal=True)
        future = self._loop.run_in_executor(self._executor, work)
        self._under_way += 1
        future.add_done_callback(self._ended)
        return future

    async def run(self, work: Callable[[], T]) -> T:
        # Shielded: a call that waits in the thread's queue must not vanish because a task was cancelled.
        return await asyncio.shield(self.start(work))

    async def run_to_end(self, work: Callable[[], T], on_cancel: Callable[[], None] = lambda: None) -> T:
        return await uninterrupted(self.start(work), on_cancel)

    def shut(self) -> None:
        """Accept no more calls. Earlier ones are still run."""
        self._shut = True
        self._executor.shutdown(wait=False)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # marks it as retrieved, even if no task waits for it


async def uninterrupted(work: Awaitable[T], on_cancel: Callable[[], None] = lambda: None) -> T:
    """Wait until this has ended, however often the task is cancelled; only then is it cancelled."""
    future = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        if not future.cancelled():
            future.exception()  # retrieved
        raise cancelled
    return future.result()
