"""Turns saved results into docs/performance.md, so that the page never says what was not measured.

The page answers questions of users, each with a picture and its figures; the prose is in `page.md`. Targets
are for those who change the code: they stand in the output of the benchmarks, not on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench import report
from bench.frames import B200_BATCH, IN_FLIGHT_REQUESTS, KB16_BATCH, KB64_BATCH, MB_BATCH
from bench.machine import remark
from bench.plot import advantage, draw_advantages, draw_growth, draw_limits
from bench.report import Figure, rounded
from bench.server import ROOT, BenchError

HERE = Path(__file__).parent
PAGE = ROOT / "docs" / "performance.md"
PICTURES = ROOT / "docs" / "performance"
RAW_GROUPS = ("1 connection", "4 connections", "latency when idle")
GROWTH_GROUPS = "cost with "
Draw = Callable[[Path, str, Sequence[Figure]], None]


def write_docs() -> None:
    alone = report.load("forebay")
    if alone is None:
        raise BenchError("there are no results yet: run `make bench` first")
    content, figures = alone
    raw = [figure for figure in figures if figure.group in RAW_GROUPS]
    growth = [figure for figure in figures if figure.group.startswith(GROWTH_GROUPS)]
    rest = [figure for figure in figures if figure not in raw and figure not in growth]
    shown = [figure for figure in raw if not figure.name.endswith(("p99", "p99.9"))]
    version = (report.load("kafka") or ({}, []))[0].get("kafka_version", "")
    text = (HERE / "page.md").read_text()
    PAGE.write_text(
        text.format(
            machine=_machine(content),
            version=version,
            one=_compared("kafka", "one-broker", "One broker beside Apache Kafka's: times better", "Kafka"),
            queues=_compared("kafka-shares", "queues", "Queues beside Apache Kafka's: times better", "Kafka"),
            three=_compared(
                "kafka-cluster",
                "three-brokers",
                "Three brokers beside three of Apache Kafka: times better",
                "Kafka",
            ),
            limits=_picture(draw_limits, "limits", "Beside programs that only move the bytes", shown)
            + _tables(raw, "raw limit"),
            growth=_picture(draw_growth, "growth", "Cost of a request; 1 is an empty broker", growth)
            + _tables(growth, "empty broker"),
            rest=_tables(rest, "beside"),
            spark=_compared(
                "spark", "spark", "Beside Spark's own connector: times better", "Spark's connector"
            ),
            mb_bytes=len(MB_BATCH),
            kb16_bytes=len(KB16_BATCH),
            kb64_bytes=len(KB64_BATCH),
            b200_bytes=len(B200_BATCH),
            in_flight=IN_FLIGHT_REQUESTS,
        )
    )
    print(f"written: {PAGE.relative_to(ROOT)}, {PICTURES.relative_to(ROOT)}/")


def _machine(content: dict[str, Any]) -> str:
    machine = content["machine"]
    kernel = machine["kernel"].partition("-")[0]
    hardware = f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_gb']} GB"
    python = f"CPython {machine['python']}"
    if "call_ns" in machine:  # results of earlier days lack it
        python += f" (which calls a method in {machine['call_ns']} ns)"
    return f"Measured on {content['date']}: {hardware}, Linux {kernel}, {python}." + _noise(content)


def _noise(content: dict[str, Any]) -> str:
    noise = remark(content["neighbours"])
    return f"\n\nNote: {noise}." if noise else ""


def _compared(result: str, picture: str, title: str, other: str) -> str:
    """A comparison with others: what they were both seen to do, in a picture and in figures."""
    loaded = report.load(result)
    if loaded is None:
        return "Not measured on this machine.\n"
    content, figures = loaded
    both = [figure for figure in figures if figure.limit]
    return _picture(draw_advantages, picture, title, both) + _tables(figures, other) + _noise(content)


def _picture(draw: Draw, name: str, title: str, figures: Sequence[Figure]) -> str:
    draw(PICTURES / f"{name}.png", title, figures)
    return f"![{title}](performance/{name}.png)\n\n"


def _tables(figures: Sequence[Figure], other: str) -> str:
    lines: list[str] = []
    for group, members in groupby(figures, key=lambda figure: figure.group):
        rows = list(members)
        compared = any(figure.limit for figure in rows)
        heads = ["Forebay", other, "times better"] if compared else ["Forebay"]
        lines += [f"| {group} | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
        lines += [_row(figure, compared, other) for figure in rows]
        lines += [""]
    return "\n".join(lines)


def _row(figure: Figure, compared: bool, other: str) -> str:
    cells = [figure.name, f"{rounded(figure.value)} {figure.unit}"]
    if compared:
        named = figure.limit_name and figure.limit_name.lower() not in other.lower()
        limit = rounded(figure.limit) + (f" ({figure.limit_name})" if named else "") if figure.limit else ""
        cells += [limit, rounded(advantage(figure)) if figure.limit else ""]
    return f"| {' | '.join(cells)} |"
