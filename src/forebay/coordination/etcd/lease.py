"""A lease on etcd, as its holder sees it.

`valid()` is decided here, without asking anyone: a keep-alive that was answered holds from the moment it was
*sent*, for the time to live less a margin, on a clock that continues while the machine sleeps.

Past that moment the lease is not valid, but not lost either: if etcd itself was down it comes back with the
lease still there, a later keep-alive is answered, and nobody has seen this broker's keys vanish. It is lost
when etcd says so, or when the broker gave it up. While another etcd answers, or an older state of the same
one, it is not valid either, and is not kept alive: nothing that such a store says counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import math

from forebay.clock import Clock
from forebay.config import ClusterConfig
from forebay.coordination.etcd.failures import Refused
from forebay.coordination.etcd.gateway import Gateway
from forebay.coordination.etcd.keeper import Keeper
from forebay.coordination.store import StoreError

_HEARTBEAT_S = 0.25
_GOODBYE_S = 1.0


async def grant(config: ClusterConfig, gateway: Gateway, clock: Clock, ttl_s: float) -> EtcdLease:
    sent_at = clock.monotonic()
    try:
        # If the first answer is lost, nobody uses its lease, and it expires.
        answer = await gateway.call("/v3/lease/grant", {"TTL": str(math.ceil(ttl_s))}, repeatable=True)
    except Refused as error:
        raise error.as_store_error(gateway.user) from error
    keeper = Keeper(
        config,
        clock,
        lease_id=int(answer["ID"]),
        ttl_s=float(answer["TTL"]),
        sent_at=sent_at,
        known=gateway.known,
    )
    return EtcdLease(gateway, keeper)


async def end_lease(gateway: Gateway, lease_id: int) -> None:
    try:
        await gateway.call("/v3/lease/revoke", {"ID": str(lease_id)}, repeatable=True)
    except Refused as error:
        if not error.lease_not_found:
            raise error.as_store_error(gateway.user) from error


class EtcdLease:
    def __init__(self, gateway: Gateway, keeper: Keeper) -> None:
        self.id = keeper.lease_id
        self.lost = asyncio.Event()
        self._gateway = gateway
        self._keeper = keeper
        self._loop = asyncio.get_running_loop()
        self._heartbeat: asyncio.Handle = self._loop.call_soon(self._beat)
        keeper.start(on_lost=self._told_lost)

    def valid(self) -> bool:
        return not self.lost.is_set() and self._keeper.holds and self._gateway.known.refused is None

    @property
    def deadline(self) -> float:
        """The end of its validity if no further keep-alive is answered, in monotonic time."""
        return self._keeper.deadline

    async def revoke(self) -> None:
        held = not self.lost.is_set()
        self._lose()  # nobody may rely on the lease from here on
        self._keeper.stop()
        if held:
            await end_lease(self._gateway, self.id)
        # A caller that is cancelled here must not cancel what others wait for.
        await asyncio.shield(asyncio.wrap_future(self._keeper.ended))

    async def close(self) -> None:
        """Like `revoke`, but without waiting for etcd or the keeper's thread: nobody renews the lease any
        more, so it expires by itself."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await self.revoke()

    def _beat(self) -> None:
        self._keeper.beat()
        self._heartbeat = self._loop.call_later(_HEARTBEAT_S, self._beat)

    def _lose(self) -> None:
        self.lost.set()
        self._heartbeat.cancel()

    def _told_lost(self) -> None:
        """Called by the keeper's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody is left to be notified
            self._loop.call_soon_threadsafe(self._lose)
