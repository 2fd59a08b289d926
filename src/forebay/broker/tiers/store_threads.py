"""Threads for requests to an object store. A broker that stops does not wait for them.

A request may take as long as the store's time limits, which is half a minute. So whoever waits for one when
the broker stops gets an error, and threads that do not end soon are left behind. Nothing is lost by that: an
upload that was not entered in its manifest is pending there, and the next leader has it deleted; a manifest
that is written late is refused, or is the one that the next leader reads.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from forebay.clock import Clock
from forebay.tiers.object_store import ObjectStoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

STOP_WAIT_S = 2.0
"""How long a broker that is stopped waits for the requests under way."""


class StoreThreads:
    """The pool is made when there is work for the first time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, make_pool: Callable[[], Executor]
    ) -> None:
        self._loop = loop
        self._now = clock.monotonic
        self._make_pool = make_pool
        self._pool: Executor | None = None
        self._ended: asyncio.Future[None] = loop.create_future()
        """Done when nobody is to wait any longer."""
        self._under_way: set[threading.Event] = set()
        """One for each request; its thread sets it. Threads add and remove."""
        self.is_late = False
        """True if a thread was left behind when the broker was stopped."""

    async def run(self, work: Callable[[], T]) -> T:
        """Have a thread do it. Raises what it raises, and ObjectStoreError when the broker stops."""
        if self._ended.done():
            raise _stopped()
        doing = self._loop.run_in_executor(self._executor, self._do, work)
        await asyncio.wait((doing, self._ended), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            doing.cancel()  # its thread goes on, and nobody hears of it
            raise _stopped()
        return doing.result()

    def submit(self, work: Callable[[], None]) -> None:
        """Have a thread do it, and wait for nothing. The work itself says when it is done."""
        if not self._ended.done():
            self._executor.submit(self._do, work)

    @property
    def _executor(self) -> Executor:
        if self._pool is None:
            self._pool = self._make_pool()
        return self._pool

    def _do(self, work: Callable[[], T]) -> T:
        """In a thread."""
        ended = threading.Event()
        self._under_way.add(ended)
        try:
            return work()
        finally:
            ended.set()
            self._under_way.discard(ended)

    def stop(self) -> None:
        """Let nobody wait any longer."""
        if not self._ended.done():
            self._ended.set_result(None)

    def close(self) -> None:
        """Blocks until the requests under way have ended, or are given up."""
        if self._pool is None:
            return
        self._pool.shutdown(wait=False, cancel_futures=True)
        give_up_s = self._now() + STOP_WAIT_S
        for ended in tuple(self._under_way):
            if not ended.wait(max(give_up_s - self._now(), 0)):
                self.is_late = True
        if self.is_late:
            log.warning("the object store does not answer, and what was asked of it is given up")


def _stopped() -> ObjectStoreError:
    return ObjectStoreError("the broker is being stopped")
