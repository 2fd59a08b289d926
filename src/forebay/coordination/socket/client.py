"""The store of a worker: it is its parent's, at the other end of a Unix socket.

There is one connection, made before this process was started, and no second one. When it ends, so has the
parent: all calls fail, and leases are lost. A watch asks for the next events again and again, each time from
where the last answer ended, so neither side keeps a queue for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from itertools import count
from typing import Any

from forebay.clock import Clock, SystemClock
from forebay.coordination.socket.lease import SocketLease
from forebay.coordination.socket.messages import (
    UNASKED,
    Message,
    frame,
    put_txn,
    read_message,
    take_error,
    take_event,
    take_item,
)
from forebay.coordination.store import (
    Compare,
    Delete,
    Event,
    KeyValue,
    Put,
    StoreAway,
    StoreClosed,
    StoreError,
    StoreIdentity,
    TxnResult,
    check_txn,
)
from forebay.coordination.store_identity import KnownStore

REQUEST_TIMEOUT_S = 30.0
"""A parent that has ended is noticed at once. This is for one that hangs, or gets no core for long."""
_GONE = "the process that has the store has ended"


class _Asked:
    """A request that is not answered yet, with the parts of its answer that have come."""

    def __init__(self) -> None:
        self.done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self.parts: list[Any] = []


class SocketStore:
    """Create one with `await SocketStore.open(socket)`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        clock: Clock | None = None,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.known = KnownStore()
        self._writer = writer
        self._clock = clock or SystemClock()
        self._request_timeout_s = request_timeout_s
        self._numbers = count(UNASKED + 1)
        self._asked: dict[int, _Asked] = {}
        self._leases: dict[int, SocketLease] = {}
        self._ended: StoreError | None = None
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def open(
        cls,
        connected: socket.socket,
        clock: Clock | None = None,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> SocketStore:
        reader, writer = await asyncio.open_unix_connection(sock=connected)
        return cls(reader, writer, clock, request_timeout_s=request_timeout_s)

    async def identity(self) -> StoreIdentity:
        cluster, index, revision = await self._ask_once("identity")
        return StoreIdentity(cluster=cluster, index=index, revision=revision)

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        pages = await self._ask("range", prefix)
        return [take_item(item) for page, _ in pages for item in page], pages[0][1]

    async def get(self, key: str) -> KeyValue | None:
        found = await self._ask_once("get", key)
        return None if found is None else take_item(found)

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        check_txn(compares, puts, deletes)
        ok, revision = await self._ask_once("txn", *put_txn(compares, puts, deletes))
        return TxnResult(ok=ok, revision=revision)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        position = from_revision
        while True:
            ((events, seen),) = await self._ask("watch", prefix, position, patient=True)
            position = seen + 1
            yield [take_event(event) for event in events], seen

    async def lease(self, ttl_s: float) -> SocketLease:
        sent_at = self._clock.monotonic()
        lease_id = await self._ask_once("lease", ttl_s)
        self._leases = {key: lease for key, lease in self._leases.items() if not lease.lost.is_set()}
        lease = self._leases[lease_id] = SocketLease(
            lease_id,
            ttl_s,
            sent_at,
            clock=self._clock,
            known=self.known,
            renew=self._renew,
            end=self.revoke,
        )
        return lease

    async def expiring(self, ttl_s: float) -> int:
        return int(await self._ask_once("expiring", ttl_s))

    async def revoke(self, lease_id: int) -> None:
        await self._ask_once("revoke", lease_id)

    async def close(self) -> None:
        """End all waiting calls and the connection, and with it the leases; may be called again."""
        self._end(StoreClosed("the store is closed"))
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _renew(self, lease_id: int) -> bool:
        return bool(await self._ask_once("renew", lease_id))

    # -- requests and answers --------------------------------------------------------------------------

    async def _ask_once(self, kind: str, *arguments: Any) -> Any:
        """The whole answer, for requests whose answer is one message."""
        (content,) = await self._ask(kind, *arguments)
        return content

    async def _ask(self, kind: str, *arguments: Any, patient: bool = False) -> list[Any]:
        """The parts of the answer. `patient`: it may take for ever."""
        if self._ended is not None:
            raise type(self._ended)(self._ended.message)
        number, asked = next(self._numbers), _Asked()
        self._asked[number] = asked
        try:
            self._writer.write(frame([number, kind, arguments]))
            async with asyncio.timeout(None if patient else self._request_timeout_s):
                return await asked.done
        except TimeoutError:
            raise StoreAway(
                f"the store of the parent process did not answer within {self._request_timeout_s:.0f} s"
            ) from None
        finally:
            del self._asked[number]
            if asked.done.cancelled():
                self._cancel(number)

    def _cancel(self, number: int) -> None:
        """Have the server give up a request that nobody waits for."""
        if self._ended is None:
            self._writer.write(frame([next(self._numbers), "cancel", [number]]))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        error = StoreAway(_GONE)
        try:
            while (message := await read_message(reader)) is not None:
                self._take(message)
        except StoreError as wrong:
            error = StoreAway(wrong.message)
        self._end(error)

    def _take(self, message: Message) -> None:
        number, outcome, content = message
        if number == UNASKED:
            if (lease := self._leases.pop(outcome, None)) is not None:
                lease.lose()
            return
        asked = self._asked.get(number)
        if asked is None or asked.done.done():
            return  # whoever asked has given up
        if isinstance(outcome, str):
            asked.done.set_exception(take_error(outcome, content))
            return
        asked.parts.append(content)
        if outcome:
            asked.done.set_result(asked.parts)

    def _end(self, error: StoreError) -> None:
        if self._ended is not None and not isinstance(error, StoreClosed):
            return
        self._ended = error
        for lease in self._leases.values():
            lease.lose()
        self._leases.clear()
        for asked in self._asked.values():
            if not asked.done.done():
                asked.done.set_exception(error)
