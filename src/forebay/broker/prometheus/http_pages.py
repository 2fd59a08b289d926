"""Small pages of text over HTTP, on an address of their own, for programs that look at brokers.

An answer is a page of text, and the connection ends with it. What a visitor can cost is bounded: a few
visitors are served at a time, and each has a short time to send its request.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.broker.ports import Address

log = logging.getLogger(__name__)

PLAIN = "text/plain; charset=utf-8"
_VISITORS_MAX = 16
_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_S_MAX = 5.0
_ANSWER_S_MAX = 30.0


class HttpPages(ABC):
    """Serves pages; a subclass makes them (`page_at`)."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self.address: Address | None = None
        self._visitors = 0

    async def start(self, host: str, port: int) -> Address:
        """Where it listens; raises ConfigError."""
        try:
            server = await asyncio.start_server(
                self._visit, host or None, port, limit=_REQUEST_BYTES_MAX, backlog=_VISITORS_MAX
            )
        except OSError as error:
            raise ConfigError(f"forebay.metrics.listener: cannot listen on {host}:{port}: {error}") from None
        self._server = server
        address: Address = server.sockets[0].getsockname()[:2]
        self.address = address
        log.info("metrics are served", extra={"at": f"http://{address[0]}:{address[1]}/metrics"})
        return address

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @abstractmethod
    async def page_at(self, path: bytes, head: bytes) -> list[bytes]:
        """The whole answer, made by `response`; `head` is the visitor's request."""

    # -- one visitor -----------------------------------------------------------------------------------

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._visitors += 1
        try:
            if self._visitors <= _VISITORS_MAX:
                async with asyncio.timeout(_REQUEST_S_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                async with asyncio.timeout(_ANSWER_S_MAX):
                    for piece in await self._answer(head):
                        writer.write(piece)
                        await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it has gone, or wants something else than metrics
        finally:
            self._visitors -= 1
            writer.close()

    async def _answer(self, head: bytes) -> list[bytes]:
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return response("405 Method Not Allowed", PLAIN, [b"only GET\n"])
        try:
            answer = await self.page_at(path, head)
        except Exception:
            log.exception("a page could not be made", extra={"path": path.decode(errors="replace")})
            answer = response("500 Internal Server Error", PLAIN, [b"the broker's log says why\n"])
        return answer if method == b"GET" else answer[:1]


def ready_page(problem: str | None) -> list[bytes]:
    status = "200 OK" if problem is None else "503 Service Unavailable"
    return response(status, PLAIN, [f"{problem or 'ok'}\n".encode()])


def no_page() -> list[bytes]:
    return response("404 Not Found", PLAIN, [b"there are /metrics, /healthz and /readyz\n"])


def response(status: str, kind: str, body: list[bytes]) -> list[bytes]:
    head = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {sum(map(len, body))}",
        "Connection: close",
    )
    return ["\r\n".join((*head, "", "")).encode(), *body]
