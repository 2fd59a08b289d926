"""A SQLite store behind a socket, with its server and a client of it in one process."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from forebay.clock import Clock
from forebay.coordination.keyspace import HISTORY_MAX
from forebay.coordination.socket.client import SocketStore
from forebay.coordination.socket.server import StoreServer
from forebay.coordination.sqlite import SqliteStore


class Serving:
    """A server with as many clients as are asked for."""

    def __init__(self, sqlite: SqliteStore) -> None:
        self.sqlite = sqlite
        self.server = StoreServer(sqlite)
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self) -> socket.socket:
        """A client's end of a new connection."""
        ours, theirs = socket.socketpair()
        self._tasks.add(asyncio.create_task(self.server.serve(ours)))
        return theirs

    async def client(self, clock: Clock | None = None, *, request_timeout_s: float = 10.0) -> SocketStore:
        return await SocketStore.open(self.connected(), clock, request_timeout_s=request_timeout_s)

    async def close(self) -> None:
        """When the clients are closed: the server has noticed the end of each."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.sqlite.close()


class ServedStore(SocketStore):
    """A client that takes its server with it."""

    serving: Serving

    @classmethod
    async def open(  # type: ignore[override]
        cls, path: Path, *, history_max: int = HISTORY_MAX
    ) -> ServedStore:
        serving = Serving(await SqliteStore.open(path, history_max=history_max))
        store = cls(*await asyncio.open_unix_connection(sock=serving.connected()))
        store.serving = serving
        return store

    async def close(self) -> None:
        await super().close()
        await self.serving.close()
