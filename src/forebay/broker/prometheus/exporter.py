"""What a broker does and how it is, for Prometheus: `GET /metrics` on an address of its own.

Counters are those of `telemetry/metrics.py`, gauges those of `gauges.py`. An answer is a page of text over
HTTP, and the connection ends with it. What a visitor can cost is bounded: a few visitors are served at a
time, and each has a short time to send its request.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from forebay.errors import ConfigError

if TYPE_CHECKING:
    from forebay.broker.ports import Address
    from forebay.broker.prometheus.gauges import Gauges
    from forebay.broker.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

_VISITORS_MAX = 16
_REQUEST_BYTES_MAX = 8 * 1024
_REQUEST_S_MAX = 5.0
_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


class Exporter:
    def __init__(self, metrics: Metrics, gauges: Gauges) -> None:
        self._metrics = metrics
        self._gauges = gauges
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

    # -- one visitor -----------------------------------------------------------------------------------

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._visitors += 1
        try:
            if self._visitors <= _VISITORS_MAX:
                async with asyncio.timeout(_REQUEST_S_MAX):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # it has gone, or wants something else than metrics
        finally:
            self._visitors -= 1
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", "only GET\n")
        if path != b"/metrics":
            return _response("404 Not Found", "there is only /metrics\n")
        page = _response("200 OK", self.page())
        return page if method == b"GET" else page[: page.index(b"\r\n\r\n") + 4]

    # -- the page --------------------------------------------------------------------------------------

    def page(self) -> str:
        samples = [(name, "counter", value) for name, value in self._metrics.samples()]
        samples += [(name, "gauge", value) for name, value in self._gauges.samples()]
        lines: list[str] = []
        told = ""
        for name, kind, value in samples:
            metric = name.partition("{")[0]
            if metric != told:
                lines.append(f"# TYPE {metric} {kind}\n")
            lines.append(f"{name} {value}\n")
            told = metric
        return "".join(lines)


def _response(status: str, text: str) -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status}",
        f"Content-Type: {_FORMAT}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join((*head, "", "")).encode() + body
