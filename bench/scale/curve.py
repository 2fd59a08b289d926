"""A curve: what was measured, for each size. Kept as JSON, and written as a table into docs/scale.md."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bench.report import RESULTS
from bench.server import ROOT, BenchError

PAGE = ROOT / "docs" / "scale.md"

Row = dict[str, float]
"""Measured values by name, the size first."""


def keep(name: str, rows: Sequence[Row]) -> None:
    """Keep these rows, and those of other sizes that were measured before."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    before = kept(name) if _path(name).exists() else []
    by_size = {_size(row): row for row in [*before, *rows]}
    _path(name).write_text(json.dumps([by_size[size] for size in sorted(by_size)], indent=1))


def _size(row: Row) -> float:
    return next(iter(row.values()))


def kept(name: str) -> list[Row]:
    path = _path(name)
    if not path.exists():
        raise BenchError(f"there is no {path.name} yet: run `make bench-scale ARGS={name}` first")
    rows: list[Row] = json.loads(path.read_text())
    return rows


def _path(name: str) -> Path:
    return RESULTS / f"scale-{name}.json"


def table(rows: Iterable[Row]) -> str:
    rows = list(rows)
    heads = list(rows[0])
    lines = [heads, ["---:"] * len(heads), *([_shown(row.get(head)) for head in heads] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_page(names: Iterable[str]) -> None:
    """Put the tables of these curves into the page, between the marks that name them, and their pictures
    beside it."""
    text = PAGE.read_text()
    for name in names:
        mark = f"<!-- bench: {name} -->"
        pattern = re.compile(rf"{re.escape(mark)}\n.*?<!-- end -->", re.DOTALL)
        if not pattern.search(text):
            raise BenchError(f"{PAGE} has no place for the curve {name!r}: {mark}")
        text = pattern.sub(lambda _, name=name, mark=mark: f"{mark}\n{table(kept(name))}\n<!-- end -->", text)  # type: ignore[misc]
        if (picture := RESULTS / f"scale-{name}.png").exists():
            (PAGE.parent / "scale").mkdir(exist_ok=True)
            shutil.copy(picture, PAGE.parent / "scale" / f"{name}.png")
    PAGE.write_text(text)
