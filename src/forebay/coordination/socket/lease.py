"""A lease of a served store, as its holder sees it.

Like a lease on etcd it is valid until its time to live has passed since the last renewal *that was answered*
was sent, less a margin, on a clock that continues while the machine sleeps. The event loop renews it by
itself: a loop that stands still loses the lease, as it should. The store sits in the parent of this process,
so no renewal waits for a network, and an end of the connection ends the lease at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from forebay.clock import Clock
from forebay.coordination.store import StoreError

if TYPE_CHECKING:
    from forebay.coordination.store_identity import KnownStore

_RENEWALS_PER_TTL = 8
_MARGIN_OF_TTL = 1 / 8


class SocketLease:
    def __init__(
        self,
        lease_id: int,
        ttl_s: float,
        sent_at: float,
        *,
        clock: Clock,
        known: KnownStore,
        renew: Callable[[int], Awaitable[bool]],
        end: Callable[[int], Awaitable[None]],
    ) -> None:
        """`renew` says if the lease still exists; `end` ends it."""
        self.id = lease_id
        self.lost = asyncio.Event()
        self._ttl_s = ttl_s
        self._clock = clock
        self._known = known
        self._renew = renew
        self._end = end
        self.deadline = self._holds_until(sent_at)
        """The end of its validity if no further renewal is answered, in monotonic time."""
        self._renewing = asyncio.create_task(self._keep())

    def valid(self) -> bool:
        return not self.lost.is_set() and self._clock.monotonic() < self.deadline

    async def revoke(self) -> None:
        held = not self.lost.is_set()
        self.lose()  # nobody may rely on the lease from here on
        if held:
            await self._end(self.id)

    def lose(self) -> None:
        self.lost.set()
        self._renewing.cancel()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / _RENEWALS_PER_TTL)
            if self._known.contents_refused:
                continue  # what answers has another history, and its leases do not count
            sent_at = self._clock.monotonic()
            try:
                is_there = await self._renew(self.id)
            except StoreError:
                continue  # no answer in time; it may come yet, and the lease may still exist
            if not is_there:
                self.lost.set()
                return
            self.deadline = self._holds_until(sent_at)

    def _holds_until(self, sent_at: float) -> float:
        return sent_at + self._ttl_s * (1 - _MARGIN_OF_TTL)
