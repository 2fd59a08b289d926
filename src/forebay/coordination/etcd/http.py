"""As much HTTP/1.1 as etcd's gateway needs: one request after the other on a persistent connection.

A body comes with a length, in chunks, or until the connection ends. Chunked bodies may have trailers after
them; they are read, or the next answer would begin in the middle of this one. Everything is bounded.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping

BODY_BYTES_MAX = 64 << 20
_LINE_BYTES_MAX = 64 << 10
_HEADERS_MAX = 100
_PIECE_BYTES = 64 << 10
_KEEPALIVE = {
    "TCP_KEEPIDLE": 5,
    "TCP_KEEPALIVE": 5,  # what macOS calls the same
    "TCP_KEEPINTVL": 2,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 10_000,
}
"""A server that vanished without a word is noticed within about ten seconds, also by a silent watch. Each is
set where the system has it; only Linux has the last one, for requests that are not acknowledged."""


class HttpError(Exception):
    """The connection ended too early, or the answer is malformed."""


class NotHttp(HttpError):
    """The answer is not HTTP."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host
        self._busy = False

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext | None) -> Connection:
        """Raises OSError, of which ssl's errors are a kind."""
        name = host if tls is not None else None
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname=name, limit=_LINE_BYTES_MAX
        )
        _watch_over(writer)
        return cls(reader, writer, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    @property
    def usable(self) -> bool:
        """True if another request may be tried; the other side may have closed the connection meanwhile."""
        return not (self._busy or self._reader.at_eof() or self._writer.is_closing())

    async def request(self, path: str, headers: Mapping[str, str], body: bytes | None) -> Response:
        """Sends a request, a GET if there is no body, and reads the head of the answer."""
        self._busy = True
        lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        await self._writer.drain()
        return Response(self, *await self._head())

    def abort(self) -> None:
        """Ends the connection at once, whatever is under way."""
        self._writer.transport.abort()

    async def _head(self) -> tuple[int, dict[str, str]]:
        parts = (await self.line()).split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise NotHttp("this is not HTTP: is it etcd's client port?")
        return int(parts[1]), await self.fields()

    async def fields(self) -> dict[str, str]:
        """Header fields, or trailers, up to the empty line."""
        found: dict[str, str] = {}
        for _ in range(_HEADERS_MAX):
            line = await self.line()
            if not line:
                return found
            name, _, value = line.partition(":")
            found[name.strip().lower()] = value.strip()
        raise NotHttp("too many header fields")

    async def line(self) -> str:
        try:
            return (await self._reader.readuntil(b"\n")).decode("latin-1").rstrip("\r\n")
        except asyncio.IncompleteReadError as error:
            raise HttpError("the server hung up") from error
        except asyncio.LimitOverrunError as error:
            raise NotHttp("a line without end") from error

    async def exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as error:
            raise HttpError("the server hung up") from error

    async def some(self) -> bytes:
        """The available bytes; none at the end of the connection."""
        return await self._reader.read(_PIECE_BYTES)

    def finished(self) -> None:
        """The answer was read to its end: the connection is free for another request."""
        self._busy = False


class Response:
    def __init__(self, connection: Connection, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self._connection = connection
        self._headers = headers

    async def read(self) -> bytes:
        """The whole body."""
        body = bytearray()
        async for piece in self._pieces():
            body += piece
            if len(body) > BODY_BYTES_MAX:
                raise HttpError(f"an answer of more than {BODY_BYTES_MAX} bytes")
        return bytes(body)

    async def lines(self) -> AsyncIterator[bytes]:
        """The body line by line, as it comes."""
        rest = bytearray()
        async for piece in self._pieces():
            rest += piece
            if len(rest) > BODY_BYTES_MAX:
                raise HttpError(f"a line of more than {BODY_BYTES_MAX} bytes")
            if b"\n" in piece:
                *whole, last = bytes(rest).split(b"\n")
                rest = bytearray(last)
                for line in whole:
                    if line.strip():
                        yield line
        if rest.strip():
            yield bytes(rest)

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._headers.get("transfer-encoding", "").lower() == "chunked":
            async for piece in self._chunks():
                yield piece
        elif "content-length" in self._headers:
            yield await self._connection.exactly(_length(self._headers["content-length"], 10))
        else:
            while piece := await self._connection.some():
                yield piece
            return  # the end of the connection was the end of the body
        if self._headers.get("connection", "").lower() != "close":
            self._connection.finished()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := _length((await self._connection.line()).partition(";")[0], 16):
            piece = await self._connection.exactly(size + 2)
            yield piece[:-2]
        await self._connection.fields()


def _length(text: str, base: int) -> int:
    try:
        length = int(text.strip(), base)
    except ValueError:
        raise NotHttp(f"{text[:20]!r} is not a length") from None
    if not 0 <= length <= BODY_BYTES_MAX:
        raise NotHttp(f"an answer of {length} bytes")
    return length


def _watch_over(writer: asyncio.StreamWriter) -> None:
    connected = writer.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
