"""The kinds of metrics, and the page that holds their samples: Prometheus' text format and OpenMetrics.

A family is a metric with its type and its help text. All samples of a family stand together on the page, in
whatever order they were added. Samples of single topics, partitions and groups are *details*: a page has a
limited number of them, because each costs memory here and at whoever reads it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import NamedTuple

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

JMX, EXPORTER, CLIENTS = "JMX exporter", "kafka_exporter", "Prometheus clients"
"""Whose dashboards know a name."""

_TOTAL = "_total"
_LINES_AT_ONCE = 2000


class Family(NamedTuple):
    name: str
    kind: str
    """counter, gauge or histogram."""
    help: str
    labels: tuple[str, ...] = ()
    known_from: str = ""
    """Whose dashboards know the name."""


def counter(name: str, text: str, *labels: str, known_from: str = "") -> Family:
    return Family(name, "counter", text, labels, known_from)


def gauge(name: str, text: str, *labels: str, known_from: str = "") -> Family:
    return Family(name, "gauge", text, labels, known_from)


def labels(**values: object) -> str:
    """The labels of a sample as they are written."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in values.items())


def escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


class Page:
    def __init__(self, families: Mapping[str, Family], *, details_max: int) -> None:
        self._families = families
        self._lines: dict[str, list[str]] = {}
        self._details_left = details_max
        self.left_out = 0
        """Details that the page has no room for."""

    def add(self, name: str, value: float, labels: str = "") -> None:
        assert name in self._families, f"{name} is not in the catalog"
        self._lines_of(name).append(f"{name}{{{labels}}} {value}\n" if labels else f"{name} {value}\n")

    def add_detail(self, name: str, value: float, labels: str) -> None:
        if self.has_room(1):
            self.add(name, value, labels)

    def has_room(self, count: int) -> bool:
        """Take room for this many details, all or none."""
        if self._details_left < count:
            self.left_out += count
            return False
        self._details_left -= count
        return True

    def add_histogram(
        self, name: str, labels: str, bounds: Sequence[float], counts: Sequence[int], total: float
    ) -> None:
        """`counts` has one number per bound, and a last one for what lies above all of them."""
        lines, count = self._lines_of(name), 0
        for bound, more in zip((*map(str, bounds), "+Inf"), counts, strict=True):
            count += more
            lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {count}\n')
        lines.append(f"{name}_sum{{{labels}}} {total}\n")
        lines.append(f"{name}_count{{{labels}}} {count}\n")

    def _lines_of(self, name: str) -> list[str]:
        lines = self._lines.get(name)
        if lines is None:
            lines = self._lines[name] = []
        return lines

    def written(self, *, open_metrics: bool) -> Generator[None, None, list[bytes]]:
        """The page in pieces, after steps that each take a short time."""
        pieces: list[bytes] = []
        for name, lines in self._lines.items():
            pieces.append(_head(self._families[name], open_metrics=open_metrics).encode())
            for start in range(0, len(lines), _LINES_AT_ONCE):
                text = "".join(lines[start : start + _LINES_AT_ONCE])
                pieces.append(text.encode(errors="backslashreplace"))
                yield
        if open_metrics:
            pieces.append(b"# EOF\n")
        return pieces


def _head(family: Family, *, open_metrics: bool) -> str:
    name = family.name
    if open_metrics and family.kind == "counter":
        name = name.removesuffix(_TOTAL)
    help_text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {help_text}\n# TYPE {name} {family.kind}\n"
