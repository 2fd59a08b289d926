"""What was measured, judged and shown: a table for people, JSON for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.machine import machine
from bench.server import ROOT

RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, beside the raw limit it is compared with and the target it is held to."""

    group: str
    name: str
    value: float
    unit: str
    limit: float | None = None
    """The same quantity of the raw limit (or of the other broker), in the same unit."""
    limit_name: str = ""
    at_least: float | None = None
    at_most: float | None = None
    judged: str = "ratio"
    """Whether the target speaks of the `ratio` to the limit or of the `value` itself."""

    @property
    def ratio(self) -> float | None:
        return self.value / self.limit if self.limit else None

    @property
    def target(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        sign, bound = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        assert bound is not None
        return f"{sign} {rounded(bound)}" + (" x" if self.judged == "ratio" else f" {self.unit}")

    @property
    def passed(self) -> bool | None:
        """None where there is nothing to judge."""
        number = self.ratio if self.judged == "ratio" else self.value
        if number is None or not self.target:
            return None
        return (self.at_least is None or number >= self.at_least) and (
            self.at_most is None or number <= self.at_most
        )

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "target": self.target, "passed": self.passed}


def rounded(number: float) -> str:
    """Three digits that count, thousands marked."""
    if number >= 100:
        return f"{number:,.0f}"
    if number >= 10:
        return f"{number:.1f}"
    return f"{number:.2f}" if number >= 0.1 or number == 0 else f"{number:.3f}"


def verdict(figure: Figure) -> str:
    return {True: "pass", False: "MISS", None: ""}[figure.passed]


def save(name: str, figures: Sequence[Figure], **extra: Any) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {
        "name": name,
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        **extra,
        "figures": [figure.as_dict() for figure in figures],
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def load(name: str) -> tuple[dict[str, Any], list[Figure]] | None:
    """What an earlier run saved, None when there was none."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    content = json.loads(path.read_text())
    derived = ("ratio", "target", "passed")
    figures = [
        Figure(**{key: value for key, value in row.items() if key not in derived})
        for row in content.pop("figures")
    ]
    return content, figures


def show(title: str, figures: Sequence[Figure], limit_title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in ("", "measured", limit_title, "ratio", "target", ""):
        table.add_column(heading, justify="left" if heading == "" else "right")
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            table.add_section()
            table.add_row(f"[bold]{group}[/bold]")
        table.add_row(*_cells(figure), style="red" if figure.passed is False else None)
    # Piped output has no width of its own: a table cut to 80 columns would lose its figures.
    console = Console()
    (console if console.is_terminal else Console(width=140)).print(table)


def _cells(figure: Figure) -> tuple[str, ...]:
    limit = f"{rounded(figure.limit)} ({figure.limit_name})" if figure.limit else ""
    ratio = f"{rounded(figure.ratio)} x" if figure.ratio is not None else ""
    measured = f"{rounded(figure.value)} {figure.unit}"
    return figure.name, measured, limit, ratio, figure.target, verdict(figure)


def summary(figures: Sequence[Figure]) -> str:
    judged = [figure for figure in figures if figure.passed is not None]
    missed = [f"{figure.group}: {figure.name}" for figure in judged if not figure.passed]
    line = f"{len(judged) - len(missed)} of {len(judged)} targets reached"
    return line + (f"; missed: {'; '.join(missed)}" if missed else "")
