"""What a visitor of a broker's metrics listener reads, taken apart by Prometheus' own parsers."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics_families
from prometheus_client.parser import text_string_to_metric_families as text_families

OPEN_METRICS = "application/openmetrics-text"
_SECONDS_MAX = 60.0


class Answer(NamedTuple):
    status: int
    kind: str
    text: str


class Scraped:
    """One page, which both parsers have taken whole."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = {family.name: family for family in families}
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self._values[name, frozenset(labels.items())]

    def get(self, name: str, **labels: str) -> float | None:
        return self._values.get((name, frozenset(labels.items())))

    @property
    def names(self) -> set[str]:
        """Of samples: what a query can name."""
        return {name for name, _ in self._values}

    def labels_of(self, name: str) -> set[frozenset[tuple[str, str]]]:
        return {labels for each, labels in self._values if each == name}


def free_port() -> int:
    """For a listener whose address has to be known before it is there."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


def visit(address: tuple[str, int], path: str, headers: Mapping[str, str] | None = None) -> Answer:
    request = urllib.request.Request(f"http://{address[0]}:{address[1]}{path}", headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS_MAX) as answer:
            return Answer(answer.status, answer.headers["Content-Type"], answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers["Content-Type"], error.read().decode())


def scrape(address: tuple[str, int]) -> Scraped:
    """The page in the format OpenMetrics; the other one is read, too."""
    plain = visit(address, "/metrics")
    assert plain.kind.startswith("text/plain; version=0.0.4")
    page = visit(address, "/metrics", {"Accept": f"{OPEN_METRICS};version=1.0.0,text/plain;q=0.5"})
    assert page.kind.startswith(f"{OPEN_METRICS}; version=1.0.0")
    scraped = Scraped(list(open_metrics_families(page.text)))  # type: ignore[no-untyped-call]
    older = {family.name for family in text_families(plain.text)}
    assert older == set(scraped.families), "both formats have the same metrics"
    return scraped
