"""A store on an etcd that other tests use as well, looking as if it were new and alone.

Keys get a prefix of their own, and revisions are counted from the one at which the store was opened.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from forebay.config import ClusterConfig, broker_config
from forebay.coordination.etcd.lease import EtcdLease
from forebay.coordination.etcd.store import EtcdStore
from forebay.coordination.store import Compare, Delete, Event, KeyValue, Put, StoreIdentity, TxnResult
from forebay.coordination.store_identity import KnownStore
from forebay.local.etcd import EtcdCluster

_numbers = itertools.count()


def cluster_config(etcd: EtcdCluster, name: str = "test", **settings: str) -> ClusterConfig:
    return broker_config({"forebay.cluster": etcd.url(name), **settings}).cluster


async def until_renewed(lease: EtcdLease) -> None:
    """Until a keep-alive that is sent from now on has been answered."""
    before = lease.deadline
    async with asyncio.timeout(60):
        while lease.deadline <= before:  # noqa: ASYNC110 - a thread renews it, and tells nobody
            await asyncio.sleep(0.02)


class OwnCorner:
    """Make one with `await OwnCorner.open(etcd)`."""

    def __init__(self, etcd: EtcdCluster, store: EtcdStore, first_revision: int) -> None:
        self.etcd = etcd
        self.store = store
        self._prefix = f"corner-{next(_numbers)}:"
        self._base = first_revision

    @classmethod
    async def open(cls, etcd: EtcdCluster) -> OwnCorner:
        store = await EtcdStore.open(cluster_config(etcd))
        return cls(etcd, store, (await store.range("nothing"))[1])

    @property
    def known(self) -> KnownStore:
        return self.store.known

    async def identity(self) -> StoreIdentity:
        return await self.store.identity()

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        items, revision = await self.store.range(self._prefix + prefix)
        return [self._inside(item) for item in items], revision - self._base

    async def get(self, key: str) -> KeyValue | None:
        item = await self.store.get(self._prefix + key)
        return None if item is None else self._inside(item)

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        result = await self.store.txn(
            [replace(c, key=self._prefix + c.key, revision=self._outside(c.revision)) for c in compares],
            [replace(put, key=self._prefix + put.key) for put in puts],
            [replace(delete, key=self._prefix + delete.key) for delete in deletes],
        )
        return replace(result, revision=result.revision - self._base)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        async for events, revision in self.store.watch(self._prefix + prefix, from_revision + self._base):
            yield [replace(event, kv=self._inside(event.kv)) for event in events], revision - self._base

    async def lease(self, ttl_s: float) -> EtcdLease:
        return await self.store.lease(ttl_s)

    async def expiring(self, ttl_s: float) -> int:
        return await self.store.expiring(ttl_s)

    async def revoke(self, lease_id: int) -> None:
        await self.store.revoke(lease_id)

    async def close(self) -> None:
        await self.store.close()

    def _outside(self, revision: int) -> int:
        return revision + self._base if revision > 0 else 0

    def _inside(self, item: KeyValue) -> KeyValue:
        return replace(
            item,
            key=item.key.removeprefix(self._prefix),
            create_revision=max(0, item.create_revision - self._base),
            mod_revision=item.mod_revision - self._base,
        )
