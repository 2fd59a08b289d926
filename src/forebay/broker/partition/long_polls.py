"""Long polls: consumers' fetches that wait until enough bytes have come, or their time is up.

(Followers' fetches wait for other things: `fetch/follower_fetch.py`.)

A partition keeps its waiters. Appends only note how many bytes have come; the waiters are notified after the
responses of the current event have been sent, so that a producer never waits for its consumers to be served.

A fetch cannot always read all appended bytes: a read-committed one does not get those of open transactions.
Such a fetch reads again to count its bytes (`recount`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol


class Waiter(Protocol):
    """A request that waits for a partition, as long as it is among its `waiters`."""

    def arrived(self, partition: Any, size: int) -> None:
        """This many bytes have come, or what is there may be read now."""

    def finish(self) -> None:
        """Something other than data happened to the partition, as a change of its leader."""


class Watched(Protocol):
    """Something with waiters: a partition, or a share partition."""

    waiters: dict[Waiter, None]


class FetchWait:
    """A fetch that waits for bytes of some partitions."""

    __slots__ = ("_bytes_missing", "_complete", "_recount", "_timer", "_watched", "done")

    def __init__(
        self,
        watched: Iterable[Watched],
        *,
        bytes_missing: int,
        complete: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        timeout_s: float,
        recount: Callable[[Any, int, int], int] | None = None,
    ) -> None:
        """`recount(partition, missing, size)`: the bytes missing after `size` came to a partition."""
        self._watched = list(watched)
        self._bytes_missing = bytes_missing
        self._complete = complete
        self._recount = recount
        self.done = False
        for partition in self._watched:
            partition.waiters[self] = None
        self._timer = loop.call_later(timeout_s, self.finish)

    def arrived(self, partition: Any, size: int) -> None:
        if self.done:
            return  # the answer to another wait has ended this one, as when it finds the connection broken
        if self._recount is None:
            self._bytes_missing -= size
        else:
            self._bytes_missing = self._recount(partition, self._bytes_missing, size)
        if self._bytes_missing <= 0:
            self.finish()

    def finish(self) -> None:
        """Answer now, with whatever there is."""
        if self.done:
            return
        self.done = True
        self._timer.cancel()
        for partition in self._watched:
            partition.waiters.pop(self, None)
        # It is done once, and the callback may hold this wait: without the cycle no collector is needed.
        complete, self._complete, self._recount = self._complete, _nothing, None
        complete()


class Arrivals:
    """Bytes that became readable since the waiters were last notified."""

    def __init__(self) -> None:
        self._sizes: dict[Watched, int] = {}
        self._calls: dict[Callable[[], None], None] = {}

    def call(self, callback: Callable[[], None]) -> None:
        """Have something else done when the waiters are next notified."""
        self._calls[callback] = None

    def note(self, partition: Watched, size: int) -> None:
        if partition.waiters:
            self._sizes[partition] = self._sizes.get(partition, 0) + size

    def wake(self) -> None:
        while self._sizes:
            partition, size = self._sizes.popitem()
            for wait in list(partition.waiters):
                wait.arrived(partition, size)
        if self._calls:
            calls, self._calls = self._calls, {}
            for callback in calls:
                callback()


def _nothing() -> None:
    """For a wait that is done."""


def release(partition: Watched) -> None:
    """Something other than data happened to the partition: nobody waits for data any longer."""
    for wait in list(partition.waiters):
        wait.finish()
