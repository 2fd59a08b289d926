"""A network between the processes of a cluster that can be held up, one way or both, or torn.

Everybody reaches a server through its door, a port of its own that passes everything on. What a link holds up
is not lost: it is delivered when the link is healed, as TCP would have sent it again. Until then nobody hears
anything, not even that a connection was closed.

Many come through a broker's door, so whose connection it is has to be read from its first request: brokers
name themselves in the client id. All others are clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

_HOST = "127.0.0.1"
_CHUNK = 64 * 1024
_DEADLINE_SECONDS = 60.0
_ID_AT = struct.Struct(">12xh")
"""Behind the length, the API key, the version and the correlation id comes the client id with its length."""
_BROKER_ID = re.compile(rb"forebay-(?:replica|broker)-(\d+)")

CLIENTS = "clients"
Link = tuple[str, str]
"""Who sends, and who is to receive."""
T = TypeVar("T")


def broker_name(node_id: int) -> str:
    return f"broker {node_id}"


class Links:
    """Use it with `with`. All methods may be called from any thread but the links' own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._gates: dict[Link, asyncio.Event] = {}
        self._pairs: dict[asyncio.Task[None], Link] = {}
        self._listeners: list[socket.socket] = []

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_DEADLINE_SECONDS)
        self._loop.close()

    def door(self, target: str, find: Callable[[], str], source: str | None = None) -> str:
        """host:port of a new way to a server, for one source or for any.

        `find` tells its address, or raises LookupError as long as there is none.
        """

        listener = socket.create_server((_HOST, 0))
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.call_soon_threadsafe(
            self._loop.add_reader, listener, self._admit, listener, target, find, source
        )
        return f"{_HOST}:{listener.getsockname()[1]}"

    def hold(self, *links: Link) -> None:
        """From now on nothing passes on these links, until heal()."""
        self._run(self._set(links, passing=False))

    def heal(self, *links: Link) -> None:
        self._run(self._set(links, passing=True))

    def tear(self, *links: Link) -> int:
        """Reset the connections that use these links; new ones are welcome. How many there were."""

        async def tear_now() -> int:
            torn = [task for task, link in self._pairs.items() if link in links]
            for task in torn:
                task.cancel()
            return len(torn)

        return self._run(tear_now())

    # -- on the loop ----------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_DEADLINE_SECONDS)

    def _gate(self, link: Link) -> asyncio.Event:
        gate = self._gates.get(link)
        if gate is None:
            gate = self._gates[link] = asyncio.Event()
            gate.set()
        return gate

    async def _set(self, links: tuple[Link, ...], *, passing: bool) -> None:
        for link in links:
            gate = self._gate(link)
            gate.set() if passing else gate.clear()

    async def _close(self) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        pairs = list(self._pairs)
        for task in pairs:
            task.cancel()
        await asyncio.gather(*pairs, return_exceptions=True)
        # What was aborted is closed in the next turns of the loop.
        for _ in range(3):
            await asyncio.sleep(0)

    def _admit(
        self, listener: socket.socket, target: str, find: Callable[[], str], source: str | None
    ) -> None:
        try:
            arrived, _ = listener.accept()
        except OSError:
            return  # it has gone again
        arrived.setblocking(False)
        task = self._loop.create_task(self._serve(arrived, target, find, source))
        self._pairs[task] = (source or "", target)

        def ended(task: asyncio.Task[None]) -> None:
            del self._pairs[task]
            arrived.close()

        task.add_done_callback(ended)

    async def _serve(
        self, arrived: socket.socket, target: str, find: Callable[[], str], source: str | None
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.ExitStack() as ends:
            ends.enter_context(contextlib.suppress(OSError, LookupError, asyncio.IncompleteReadError))
            reader, writer = await asyncio.open_connection(sock=arrived)
            ends.callback(writer.transport.abort)
            first = b""
            if source is None:
                source, first = await _introduction(reader)
                self._pairs[task] = (source, target)
            await self._gate((source, target)).wait()
            host, _, port = find().rpartition(":")
            there, onward = await asyncio.open_connection(host, int(port))
            ends.callback(onward.transport.abort)
            onward.write(first)
            await self._carry((reader, onward), (there, writer), source, target)

    async def _carry(
        self,
        out: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        back: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        source: str,
        target: str,
    ) -> None:
        """Until either side has closed, and the other may know."""
        pumps = [
            asyncio.create_task(_pump(*out, self._gate((source, target)))),
            asyncio.create_task(_pump(*back, self._gate((target, source)))),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _introduction(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Who it is, and what had to be read to know it."""
    head = await reader.readexactly(_ID_AT.size)
    size = max(0, _ID_AT.unpack(head)[0])
    client_id = await reader.readexactly(size)
    match = _BROKER_ID.match(client_id)
    return (broker_name(int(match[1])) if match else CLIENTS), head + client_id


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            await gate.wait()
            writer.write(data)
            await writer.drain()
    await gate.wait()
