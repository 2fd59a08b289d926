"""Turns saved results into docs/performance.md, so that the page never says what was not measured.

The prose is in `page.md`, `page_kafka.md` and `page_spark.md` beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import report
from bench.frames import B200_BATCH, IN_FLIGHT_REQUESTS, KB16_BATCH, KB64_BATCH, MB_BATCH
from bench.machine import remark
from bench.plot import draw
from bench.report import Figure, rounded, verdict
from bench.server import ROOT, BenchError

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "performance.png"


def write_docs() -> None:
    alone, beside, spark = report.load("forebay"), report.load("kafka"), report.load("spark")
    if alone is None:
        raise BenchError("there are no results yet: run `make bench` first")
    text = (HERE / "page.md").read_text()
    PAGE.write_text(
        text.format(
            machine=_machine(alone[0]),
            alone=_sections(alone[1], "raw limit"),
            beside=_beside(*beside, "page_kafka.md", "Kafka") if beside else "",
            spark=_beside(*spark, "page_spark.md", "Spark's connector") if spark else "",
            mb_bytes=len(MB_BATCH),
            kb16_bytes=len(KB16_BATCH),
            kb64_bytes=len(KB64_BATCH),
            b200_bytes=len(B200_BATCH),
            in_flight=IN_FLIGHT_REQUESTS,
        )
    )
    draw(PLOT, alone[1], beside[1] if beside else [])
    print(f"written: {PAGE.relative_to(ROOT)}, {PLOT.relative_to(ROOT)}")


def _machine(content: dict[str, Any]) -> str:
    machine = content["machine"]
    kernel = machine["kernel"].partition("-")[0]
    hardware = f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB"
    text = f"Measured on {content['date']}: {hardware}, Linux {kernel}, CPython {machine['python']}."
    noise = remark(content["neighbours"])
    return f"{text}\n\nNote: {noise}." if noise else text


def _beside(content: dict[str, Any], figures: Sequence[Figure], prose: str, limit_title: str) -> str:
    tables = _sections(figures, limit_title)
    if noise := remark(content["neighbours"]):
        tables = f"Note: {noise}.\n\n{tables}"
    return (HERE / prose).read_text().format(version=content.get("kafka_version"), tables=tables)


def _sections(figures: Sequence[Figure], limit_title: str) -> str:
    lines: list[str] = []
    for group, rows in groupby(figures, key=lambda figure: figure.group):
        lines += [f"### {group[0].upper()}{group[1:]}", ""]
        lines += [f"| | measured | {limit_title} | ratio | target | |", "|---|--:|--:|--:|--:|---|"]
        lines += [_row(figure) for figure in rows]
        lines += [""]
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    limit = rounded(figure.limit) if figure.limit else ""
    if figure.limit and figure.limit_name.lower() != "kafka":
        limit += f" ({figure.limit_name})"
    ratio = rounded(figure.ratio) if figure.ratio is not None else ""
    measured = f"{rounded(figure.value)} {figure.unit}"
    return f"| {' | '.join((figure.name, measured, limit, ratio, figure.target, verdict(figure)))} |"
