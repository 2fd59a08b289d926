"""The store of a cluster: etcd."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence

from forebay.clock import Clock, SystemClock
from forebay.config import ClusterConfig
from forebay.coordination.etcd.failures import Refused
from forebay.coordination.etcd.gateway import RANGE, REQUEST_TIMEOUT_S, TXN, Gateway
from forebay.coordination.etcd.lease import EtcdLease, end_lease, grant
from forebay.coordination.etcd.messages import (
    Json,
    key_bytes,
    key_text,
    key_value,
    prefix_range,
    revision_of,
    text_of,
    txn_request,
)
from forebay.coordination.etcd.watch import watch
from forebay.coordination.store import (
    Compare,
    Delete,
    Event,
    KeyValue,
    Put,
    StoreError,
    StoreIdentity,
    TxnResult,
    check_txn,
)
from forebay.coordination.store_identity import KnownStore

PAGE_KEYS = 1_000
_RANGES_MAX = 5


class EtcdStore:
    """Create one with `await EtcdStore.open(config)`."""

    def __init__(
        self,
        config: ClusterConfig,
        clock: Clock | None = None,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._config = config
        self.gateway = Gateway(config, request_timeout_s=request_timeout_s)
        self._clock = clock or SystemClock()
        self._leases: set[EtcdLease] = set()

    @classmethod
    async def open(
        cls,
        config: ClusterConfig,
        clock: Clock | None = None,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> EtcdStore:
        """Raises StoreError with what to do if etcd is not there, is not etcd, or refuses the login."""
        store = cls(config, clock, request_timeout_s=request_timeout_s)
        try:
            await store.gateway.version()
            await store.get(f"/forebay/{config.name}/")
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def known(self) -> KnownStore:
        return self.gateway.known

    async def identity(self) -> StoreIdentity:
        for _ in range(_RANGES_MAX):
            index = self.gateway.current
            # A server that has answered a read has caught up with everything committed before it.
            await self.get(f"/forebay/{self._config.name}/")
            answer = await self._call("/v3/maintenance/status", {}, repeatable=True)
            if index == self.gateway.current:
                header = answer.get("header", {})
                return StoreIdentity(
                    cluster=str(header.get("cluster_id", "")),
                    index=int(answer.get("raftIndex", 0)),
                    revision=revision_of(answer),
                )
        raise StoreError("etcd's servers change too fast to be told apart; try again")

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        for _ in range(_RANGES_MAX):
            try:
                return await self._pages(prefix_range(prefix))
            except Refused as error:
                # The revision may be compacted between two pages: begin again.
                if not error.compacted:
                    raise error.as_store_error(self.gateway.user) from error
        raise StoreError("etcd forgets its history faster than it can be read; compact it less often")

    async def get(self, key: str) -> KeyValue | None:
        answer = await self._call(RANGE, {"key": key_text(key)}, repeatable=True)
        return next((key_value(item) for item in answer.get("kvs", ())), None)

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        check_txn(compares, puts, deletes)
        answer = await self._call(TXN, txn_request(compares, puts, deletes))
        return TxnResult(ok=answer.get("succeeded", False), revision=revision_of(answer))

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        return watch(self.gateway, prefix, from_revision)

    async def lease(self, ttl_s: float) -> EtcdLease:
        lease = await grant(self._config, self.gateway, self._clock, ttl_s)
        self._leases = {held for held in self._leases if not held.lost.is_set()} | {lease}
        return lease

    async def expiring(self, ttl_s: float) -> int:
        request = {"TTL": str(math.ceil(ttl_s))}
        return int((await self._call("/v3/lease/grant", request, repeatable=True))["ID"])

    async def revoke(self, lease_id: int) -> None:
        await end_lease(self.gateway, lease_id)

    async def close(self) -> None:
        """Give up the leases, if etcd answers at once, and end all waiting calls; may be called again."""
        leases, self._leases = self._leases, set()
        await asyncio.gather(*(lease.close() for lease in leases))
        self.gateway.close()

    async def _pages(self, keys: Json) -> tuple[list[KeyValue], int]:
        """All keys, a page at a time, each page as of the revision of the first."""
        items: list[KeyValue] = []
        revision = 0
        more = True
        while more:
            request = {**keys, "limit": str(PAGE_KEYS), "revision": str(revision)}
            answer = await self.gateway.call(RANGE, request, repeatable=True)
            revision = revision or revision_of(answer)
            items += [key_value(item) for item in answer.get("kvs", ())]
            more = answer.get("more", False)
            if more:
                keys = {**keys, "key": text_of(key_bytes(items[-1].key) + b"\0")}
        return items, revision

    async def _call(self, path: str, body: Json | bytes, *, repeatable: bool = False) -> Json:
        try:
            return await self.gateway.call(path, body, repeatable=repeatable)
        except Refused as error:
            raise error.as_store_error(self.gateway.user) from error
