"""Metrics and health of a broker, over HTTP on an address of its own.

`GET /metrics` is for Prometheus. `/healthz` and `/readyz` are for whatever starts brokers or sends clients to
them (Kubernetes, load balancers). An answer is a page of text, and the connection ends with it. What a
visitor can cost is bounded: a few visitors are served at a time, each has a short time to send its request,
and those who ask for metrics at the same time get the same page.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forebay.broker.prometheus.families import OPEN_METRICS, TEXT
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.broker.ports import Address
    from forebay.broker.prometheus.health import Health
    from forebay.broker.prometheus.metrics_page import MetricsPage

log = logging.getLogger(__name__)

_VISITORS_MAX = 16
_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_S_MAX = 5.0
_ANSWER_S_MAX = 30.0
_PLAIN = "text/plain; charset=utf-8"


class Exporter:
    def __init__(self, metrics_page: MetricsPage, health: Health) -> None:
        self.metrics_page = metrics_page
        self.health = health
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
        self.metrics_page.close()

    def page(self) -> str:
        """The page at this moment, all at once: without what other brokers would have to be asked for."""
        return self.metrics_page.at_once()

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
            return _response("405 Method Not Allowed", _PLAIN, [b"only GET\n"])
        try:
            answer = await self._page_at(path, head)
        except Exception:
            log.exception("a page could not be made", extra={"path": path.decode(errors="replace")})
            answer = _response("500 Internal Server Error", _PLAIN, [b"the broker's log says why\n"])
        return answer if method == b"GET" else answer[:1]

    async def _page_at(self, path: bytes, head: bytes) -> list[bytes]:
        match path:
            case b"/metrics":
                open_metrics = _accepts_open_metrics(head)
                pieces = await self.metrics_page.pieces(open_metrics=open_metrics)
                return _response("200 OK", OPEN_METRICS if open_metrics else TEXT, pieces)
            case b"/healthz":
                return _response("200 OK", _PLAIN, [b"ok\n"])
            case b"/readyz":
                problem = self.health.problem()
                status = "200 OK" if problem is None else "503 Service Unavailable"
                return _response(status, _PLAIN, [f"{problem or 'ok'}\n".encode()])
            case _:
                return _response("404 Not Found", _PLAIN, [b"there are /metrics, /healthz and /readyz\n"])


def _accepts_open_metrics(head: bytes) -> bool:
    """True if the visitor names OpenMetrics among what it accepts, as Prometheus does."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"accept" and b"application/openmetrics-text" in value.lower():
            return True
    return False


def _response(status: str, kind: str, body: list[bytes]) -> list[bytes]:
    head = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {sum(map(len, body))}",
        "Connection: close",
    )
    return ["\r\n".join((*head, "", "")).encode(), *body]
