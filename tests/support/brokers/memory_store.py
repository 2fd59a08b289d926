"""A store in memory, for tests and the simulator: gone with its process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from forebay.coordination.keyspace import HISTORY_MAX, Keyspace
from forebay.coordination.store import Compare, Delete, Event, KeyValue, Put, StoreIdentity, TxnResult
from forebay.coordination.store_identity import KnownStore


class MemoryLease:
    def __init__(self, store: MemoryStore, lease_id: int) -> None:
        self.id = lease_id
        self.lost = asyncio.Event()
        self._store = store

    def valid(self) -> bool:
        return not self.lost.is_set()

    async def revoke(self) -> None:
        self._store.expire(self)


class MemoryStore:
    def __init__(self, *, history_max: int = HISTORY_MAX) -> None:
        self.keyspace = Keyspace(history_max=history_max)
        self.known = KnownStore()
        self._leases: dict[int, MemoryLease] = {}
        self._last_lease = 0

    async def identity(self) -> StoreIdentity:
        revision = self.keyspace.revision
        return StoreIdentity(cluster="memory", index=revision, revision=revision)

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        return self.keyspace.range(prefix)

    async def get(self, key: str) -> KeyValue | None:
        return self.keyspace.get(key)

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        events = self.keyspace.plan(compares, puts, deletes)
        self.keyspace.apply(events or ())
        return TxnResult(ok=events is not None, revision=self.keyspace.revision)

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        return self.keyspace.watch(prefix, from_revision)

    async def lease(self, ttl_s: float) -> MemoryLease:
        self._last_lease += 1
        self.keyspace.grant(self._last_lease)
        lease = self._leases[self._last_lease] = MemoryLease(self, self._last_lease)
        return lease

    async def expiring(self, ttl_s: float) -> int:
        lease = await self.lease(ttl_s)
        asyncio.get_running_loop().call_later(ttl_s, self.expire, lease)
        return lease.id

    async def revoke(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None:
            self.expire(lease)

    def expire(self, lease: MemoryLease) -> None:
        """Ends a lease as if its holder had fallen silent."""
        if self._leases.pop(lease.id, None) is None:
            return
        self.keyspace.end(lease.id)
        self.keyspace.apply(self.keyspace.plan_expiry())
        lease.lost.set()

    async def close(self) -> None:
        self.keyspace.close()
        for lease in self._leases.values():
            lease.lost.set()
        self._leases.clear()
