"""Metrics and health of a broker, over HTTP on an address of its own.

`GET /metrics` is for Prometheus. `/healthz` and `/readyz` are for whatever starts brokers or sends clients to
them (Kubernetes, load balancers). Visitors who ask for metrics at the same time get the same page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.prometheus.families import OPEN_METRICS, TEXT
from forebay.broker.prometheus.http_pages import PLAIN, HttpPages, no_page, ready_page, response

if TYPE_CHECKING:
    from forebay.broker.prometheus.health import Health
    from forebay.broker.prometheus.metrics_page import MetricsPage


class Exporter(HttpPages):
    def __init__(self, metrics_page: MetricsPage, health: Health) -> None:
        super().__init__()
        self.metrics_page = metrics_page
        self.health = health

    def close(self) -> None:
        super().close()
        self.metrics_page.close()

    def page(self) -> str:
        """The page at this moment, all at once: without what other brokers would have to be asked for."""
        return self.metrics_page.at_once()

    async def page_at(self, path: bytes, head: bytes) -> list[bytes]:
        match path:
            case b"/metrics":
                open_metrics = _accepts_open_metrics(head)
                pieces = await self.metrics_page.pieces(open_metrics=open_metrics)
                return response("200 OK", OPEN_METRICS if open_metrics else TEXT, pieces)
            case b"/healthz":
                return response("200 OK", PLAIN, [b"ok\n"])
            case b"/readyz":
                return ready_page(self.health.problem())
            case _:
                return no_page()


def _accepts_open_metrics(head: bytes) -> bool:
    """True if the visitor names OpenMetrics among what it accepts, as Prometheus does."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"accept" and b"application/openmetrics-text" in value.lower():
            return True
    return False
