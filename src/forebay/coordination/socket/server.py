"""Serves the SQLite store of this process to others: one connected Unix socket for each client.

A lease ends when its client's connection ends, which is at once when the process dies, or when it was not
renewed for its time to live. The client counts from the moment it sent a renewal, and stops to rely on it
earlier, so the server may always be late. It is late on purpose: a server that was stopped for a while first
reads the renewals that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable

from forebay.coordination.socket.messages import (
    UNASKED,
    Message,
    frame,
    put_error,
    put_event,
    put_item,
    read_message,
    take_txn,
)
from forebay.coordination.sqlite import SqliteLease, SqliteStore
from forebay.coordination.store import StoreClosed, StoreError

log = logging.getLogger(__name__)

PAGE_KEYS = 1_000
_REQUESTS_MAX = 1_024
"""Of one client at a time; more stay in its socket."""
WATCHES_MAX = 64
_LATE_S = 0.5


class StoreServer:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self._holders: dict[int, _Client] = {}
        """By the leases that they hold."""

    async def serve(self, connected: socket.socket) -> None:
        """Answer one client until its connection ends."""
        reader, writer = await asyncio.open_unix_connection(sock=connected)
        client = _Client(self, writer)
        try:
            while (message := await read_message(reader)) is not None:
                await client.take(message)
        except StoreError as error:
            log.error("a client of the store is not understood", extra={"reason": error.message})
        finally:
            await client.end()

    def hold(self, lease_id: int, client: _Client) -> None:
        self._holders[lease_id] = client

    def let_go(self, lease_id: int) -> None:
        self._holders.pop(lease_id, None)

    async def revoke(self, lease_id: int) -> None:
        """End any lease, and tell its holder."""
        holder = self._holders.get(lease_id)
        await self.store.revoke(lease_id)
        if holder is not None:
            holder.lose(lease_id)


class _Held:
    """A lease of a client, and the timer that ends it."""

    def __init__(self, lease: SqliteLease, ttl_s: float) -> None:
        self.lease = lease
        self.ttl_s = ttl_s
        self.renewed_s = asyncio.get_running_loop().time()
        self.timer: asyncio.TimerHandle | None = None


class _Client:
    def __init__(self, server: StoreServer, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._store = server.store
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._held: dict[int, _Held] = {}
        self._asked: dict[int, asyncio.Task[None]] = {}
        self._watches: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Semaphore(_REQUESTS_MAX)
        self._endings: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, Callable[[int, Message], Awaitable[None]]] = {
            "identity": self._identity,
            "range": self._range,
            "get": self._get,
            "txn": self._txn,
            "watch": self._watch,
            "lease": self._lease,
            "expiring": self._expiring,
            "revoke": self._revoke,
        }

    async def take(self, message: Message) -> None:
        number, kind, arguments = message
        if kind == "renew":
            self._renew(number, arguments[0])
        elif kind == "cancel":
            task = self._watches.get(arguments[0]) or self._asked.get(arguments[0])
            if task is not None:
                task.cancel()
        elif kind == "watch":
            # These wait for ever: they must not keep the client's other requests in its socket.
            self._begin(number, kind, arguments, self._watches)
        else:
            await self._room.acquire()
            self._begin(number, kind, arguments, self._asked).add_done_callback(
                lambda _: self._room.release()
            )

    def _begin(
        self, number: int, kind: str, arguments: Message, among: dict[int, asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        among[number] = task = asyncio.create_task(self._answer(number, kind, arguments))
        task.add_done_callback(lambda _: among.pop(number))
        return task

    async def _answer(self, number: int, kind: str, arguments: Message) -> None:
        try:
            await self._handlers[kind](number, arguments)
        except ConnectionError:
            pass  # the client has gone; `end` follows
        except Exception as error:
            if not isinstance(error, StoreError):
                log.exception("a request to the store failed", extra={"kind": kind})
            self._write([number, *put_error(error)])

    def _write(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(frame(message))

    async def _send(self, number: int, content: object, *, last: bool = True) -> None:
        """Waits for a client that does not read."""
        self._write([number, last, content])
        await self._writer.drain()

    async def end(self) -> None:
        """The connection has ended, and with it all leases of the client."""
        for task in (*self._asked.values(), *self._watches.values()):
            task.cancel()
        for lease_id in list(self._held):
            await self._end_lease(lease_id)
        if self._endings:
            await asyncio.wait(self._endings)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # -- requests --------------------------------------------------------------------------------------

    async def _identity(self, number: int, _: Message) -> None:
        found = await self._store.identity()
        await self._send(number, [found.cluster, found.index, found.revision])

    async def _range(self, number: int, arguments: Message) -> None:
        items, revision = await self._store.range(arguments[0])
        for start in range(0, max(1, len(items)), PAGE_KEYS):
            page = [put_item(item) for item in items[start : start + PAGE_KEYS]]
            await self._send(number, [page, revision], last=start + PAGE_KEYS >= len(items))

    async def _get(self, number: int, arguments: Message) -> None:
        item = await self._store.get(arguments[0])
        await self._send(number, None if item is None else put_item(item))

    async def _txn(self, number: int, arguments: Message) -> None:
        result = await self._store.txn(*take_txn(arguments))
        await self._send(number, [result.ok, result.revision])

    async def _watch(self, number: int, arguments: Message) -> None:
        """The next events, when there are some. The client then asks for those after them."""
        if len(self._watches) > WATCHES_MAX:
            raise StoreError(f"one process has more than {WATCHES_MAX} watches on the store")
        events, revision = await self._store.next_events(*arguments)
        await self._send(number, [[put_event(event) for event in events], revision])

    async def _revoke(self, number: int, arguments: Message) -> None:
        await self._server.revoke(arguments[0])
        await self._send(number, None)

    async def _expiring(self, number: int, arguments: Message) -> None:
        await self._send(number, await self._store.expiring(arguments[0]))

    # -- leases ----------------------------------------------------------------------------------------

    async def _lease(self, number: int, arguments: Message) -> None:
        (ttl_s,) = arguments
        lease = await self._store.lease(ttl_s)
        self._held[lease.id] = held = _Held(lease, ttl_s)
        self._server.hold(lease.id, self)
        held.timer = self._loop.call_later(ttl_s, self._look_at, held, False)
        await self._send(number, lease.id)

    def _renew(self, number: int, lease_id: int) -> None:
        """At once: renewals do not wait behind anything."""
        held = self._held.get(lease_id)
        if held is not None:
            held.renewed_s = self._loop.time()
        self._write([number, True, held is not None])

    def _look_at(self, held: _Held, is_late: bool) -> None:
        left_s = held.renewed_s + held.ttl_s - self._loop.time()
        if left_s > 0:
            held.timer = self._loop.call_later(left_s, self._look_at, held, False)
        elif not is_late:
            held.timer = self._loop.call_later(_LATE_S, self._look_at, held, True)
        else:
            log.warning("a lease is not renewed, and ends", extra={"lease": held.lease.id})
            task = asyncio.create_task(self._end_lease(held.lease.id))
            self._endings.add(task)
            task.add_done_callback(self._endings.discard)

    async def _end_lease(self, lease_id: int) -> None:
        self.lose(lease_id)
        with contextlib.suppress(StoreClosed):
            await self._store.revoke(lease_id)

    def lose(self, lease_id: int) -> None:
        """Forget a lease that has ended, and tell the client."""
        held = self._held.pop(lease_id, None)
        self._server.let_go(lease_id)
        if held is not None:
            if held.timer is not None:
                held.timer.cancel()
            self._write([UNASKED, lease_id, ""])
