"""The share fetches that wait for one share partition: a line, served from its front while there is work.

Fifty members may wait for one message. If each of them looked for itself, forty-nine would look in vain, and
the next messages would wait meanwhile. So the line waits for the partition in their place. When something can
be acquired, the fetch that has waited for longest looks first, and the others only if something is left.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from forebay.broker.partition.long_polls import Watched, release
from forebay.broker.partition.partition import Partition


class Share(Watched, Protocol):
    """A share partition; its `waiters` are the line."""

    partition: Partition

    @property
    def may_deliver(self) -> bool:
        """True if something may be acquired, as far as is known without reading the log."""


class FetchLine:
    """Waits for a partition on behalf of all fetches that wait for one of its share partitions."""

    __slots__ = ("_is_scheduled", "_loop", "_share")

    def __init__(self, share: Share, loop: asyncio.AbstractEventLoop) -> None:
        self._share = share
        self._loop = loop
        self._is_scheduled = False

    def joined(self) -> None:
        """Note that a fetch has begun to wait. It may not have read all records, so the line continues at
        once."""
        self._share.partition.waiters[self] = None
        self.serve_soon()

    def serve_soon(self) -> None:
        """Something has changed: serve in the next turn of the loop, if there is work."""
        share = self._share
        if share.waiters and not self._is_scheduled and share.may_deliver:
            self._is_scheduled = True
            self._loop.call_soon(self._serve_scheduled)

    def close(self) -> None:
        self._share.partition.waiters.pop(self, None)

    def arrived(self, _partition: Watched, _size: int) -> None:
        """Something was appended, or may be read now."""
        if self._share.waiters:
            self._serve()
        else:
            self.close()

    def finish(self) -> None:
        """Something other than data happened to the partition."""
        release(self._share)

    def _serve_scheduled(self) -> None:
        self._is_scheduled = False
        self._serve()

    def _serve(self) -> None:
        for wait in list(self._share.waiters):
            if not self._share.may_deliver:
                break
            wait.arrived(self._share, 1)
