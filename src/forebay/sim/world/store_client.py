"""The coordination store as one simulated process uses it: requests, watches, and leases that it keeps alive.

A holder trusts its lease until shortly before its end, by its own clock and by the last answer. The store can
hold back the answers to keep-alives (`SimStore.hold_back`). Then the holder doubts a lease that it still has.

Answers are trusted by the same rule as etcd's (`KnownStore`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TypeVar

from forebay.coordination.store import (
    Compacted,
    Compare,
    Delete,
    Event,
    KeyValue,
    LeaseLost,
    Put,
    StoreClosed,
    StoreError,
    StoreIdentity,
    StoreMismatch,
    TxnResult,
)
from forebay.coordination.store_identity import Header, KnownStore, Position
from forebay.sim.world.loop import ProcessLoop
from forebay.sim.world.store import SimStore

T = TypeVar("T")

_KEEP_ALIVES_PER_TTL = 4
_MARGIN = 0.1
"""Part of the TTL: this long before its end a holder no longer trusts its lease."""


class SimWatch:
    def __init__(self, client: StoreClient, prefix: str, position: int) -> None:
        self.host = client.host
        self.loop = client.loop
        self.prefix = prefix
        self.position = position
        self.push_due = False
        self.events: list[tuple[list[Event], int]] = []
        self._client = client
        self._error: StoreError | None = None
        self._begun = False
        self._waiting: asyncio.Future[None] | None = None

    def see(self, header: Header) -> None:
        self._client.known.mismatch(header)

    def give(self, events: list[Event], revision: int) -> None:
        self.position = revision + 1
        if events:
            self.events.append((events, revision))
            self._wake()

    def fail(self, error: StoreError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def __aiter__(self) -> SimWatch:
        return self

    async def __anext__(self) -> tuple[list[Event], int]:
        server = self._client.server
        if not self._begun:
            self._begun = True
            await self._check_store()
            server.begin_watch(self)
        while not self.events:
            if self._error is not None:
                await self._resume(self._error)
                return [], self.position - 1
            self._client.check_open()
            self._waiting = self.loop.create_future()
            await self._waiting
        found = self.events.pop()
        server.push_soon(self)
        return found

    async def _resume(self, error: StoreError) -> None:
        """Continue where the watch broke off, with whatever answers now, like a watch on etcd."""
        if isinstance(error, Compacted):
            raise error
        self._client.check_open()
        await self._check_store()
        self._error = None
        self._client.server.begin_watch(self)

    async def _check_store(self) -> None:
        try:
            await self._client.confirm()
        except StoreMismatch as error:
            raise StoreError(f"the watch ended: {error}") from error


class SimLease:
    def __init__(self, client: StoreClient, lease_id: int, ttl_s: float, sent_at: float) -> None:
        self.id = lease_id
        self.lost = asyncio.Event()
        self._lost_at: float | None = None
        self._client = client
        self._ttl_s = ttl_s
        self._holds_until = sent_at + ttl_s
        self._keep_soon()

    @property
    def _trusted_until(self) -> float:
        return self._holds_until - _MARGIN * self._ttl_s

    def valid(self) -> bool:
        trusted = self._client.loop.time() < self._trusted_until
        return not self.lost.is_set() and trusted and self._client.known.refused is None

    def doubted_since(self) -> float | None:
        if self.valid():
            return None
        since = (self._trusted_until, self._lost_at, self._client.refused_since)
        return min(moment for moment in since if moment is not None)

    async def revoke(self) -> None:
        self._lose()
        await self._client.call(lambda: self._client.server.revoke(self.id))

    def _lose(self) -> None:
        if self._lost_at is None:
            self._lost_at = self._client.loop.time()
        self.lost.set()

    def _keep_soon(self) -> None:
        self._client.loop.call_later(self._ttl_s / _KEEP_ALIVES_PER_TTL, self._keep)

    def _keep(self) -> None:
        if self.lost.is_set() or self._client.closed:
            return
        if self._client.loop.time() >= self._holds_until:
            self._lose()
            return
        sent_at = self._client.loop.time()
        if self._client.known.refused is not None or self._client.known.contents_refused:
            self._client.send(lambda: self._client.server.keyspace.get("/"), linearizable=True)
        else:
            answer = self._client.send(lambda: self._client.server.keep_alive(self.id))
            answer.add_done_callback(lambda answer: self._kept(answer, sent_at))
        self._keep_soon()

    def _kept(self, answer: asyncio.Future[None], sent_at: float) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._client.server.renewed(self._client.host, partial(self._renew, sent_at))
        elif isinstance(error, LeaseLost):
            self._lose()

    def _renew(self, sent_at: float) -> None:
        self._hold_until(sent_at + self._ttl_s)

    def _hold_until(self, when: float) -> None:
        if not self.lost.is_set():
            self._holds_until = max(self._holds_until, when)

    def unhear(self, doubt_in_s: float) -> Callable[[], None]:
        """Behave as if the last answers were still on their way; the returned function makes them arrive."""
        heard = self._holds_until
        doubt_at = self._client.loop.time() + doubt_in_s
        self._holds_until = min(heard, doubt_at + _MARGIN * self._ttl_s)
        return partial(self._hold_until, heard)


class StoreClient:
    """The store as one process uses it: the port that a broker is given."""

    def __init__(self, server: SimStore, loop: ProcessLoop, host: str) -> None:
        self.server = server
        self.loop = loop
        self.host = host
        self.closed = False
        self.known = KnownStore()
        self.refused_since: float | None = None

    def send(
        self, operation: Callable[[], T], *, linearizable: bool = False, puts: bool = False
    ) -> asyncio.Future[T]:
        """`puts`: a transaction that makes a revision if it succeeds."""
        answer: asyncio.Future[T] = self.loop.create_future()
        asked_at = self.known.position() if linearizable else None

        def settle(header: Header | None, result: T, error: StoreError | None) -> None:
            wrote = puts and isinstance(result, TxnResult) and result.ok
            error = self._mismatch(header, asked_at, wrote=wrote) or error
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
                answer.exception()  # nobody may be waiting for it
            else:
                answer.set_result(result)

        self.server.submit(self.host, self.known, operation, settle)
        return answer

    def _mismatch(
        self, header: Header | None, asked_at: Position | None, *, wrote: bool
    ) -> StoreMismatch | None:
        if header is None:
            return None
        mismatch = self.known.mismatch(header, asked_at, wrote=wrote)
        if mismatch is not None:
            self.known.refused = mismatch
            self.refused_since = self.refused_since or self.server.world.now
        elif asked_at is not None:
            self.known.refused = self.refused_since = None
        return mismatch

    async def call(self, operation: Callable[[], T], *, linearizable: bool = False, puts: bool = False) -> T:
        self.check_open()
        return await self.send(operation, linearizable=linearizable, puts=puts)

    async def confirm(self) -> None:
        """Raises StoreMismatch unless the right store answers."""
        await self.get("/")

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosed("the store is closed")

    async def identity(self) -> StoreIdentity:
        return await self.call(self.server.identity)

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        return await self.call(lambda: self.server.keyspace.range(prefix), linearizable=True)

    async def get(self, key: str) -> KeyValue | None:
        return await self.call(lambda: self.server.keyspace.get(key), linearizable=True)

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        return await self.call(
            lambda: self.server.txn(compares, puts, deletes, self.host), linearizable=True, puts=bool(puts)
        )

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        return SimWatch(self, prefix, from_revision)

    async def lease(self, ttl_s: float) -> SimLease:
        sent_at = self.loop.time()
        lease = SimLease(self, await self.call(lambda: self.server.grant(ttl_s)), ttl_s, sent_at)
        self.server.taken(self.host, lease)
        return lease

    async def expiring(self, ttl_s: float) -> int:
        return await self.call(lambda: self.server.grant(ttl_s))

    async def revoke(self, lease_id: int) -> None:
        await self.call(lambda: self.server.revoke_of_others(self.host, lease_id))

    async def close(self) -> None:
        self.closed = True
        self.server.end_watches(self.loop)
