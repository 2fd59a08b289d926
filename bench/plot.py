"""One picture of all targets: how many times better than its target each figure is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report import Figure

REACHED, MISSED = "#2a7f62", "#c8553d"


def headroom(figure: Figure) -> float:
    """1 is the target itself, 2 is twice as good."""
    number = figure.ratio if figure.judged == "ratio" else figure.value
    assert number is not None
    if figure.at_least is not None:
        return number / figure.at_least
    assert figure.at_most is not None
    return figure.at_most / max(number, 1e-9)


def draw(path: Path, alone: Sequence[Figure], beside: Sequence[Figure]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    titles = (("beside the raw limits", alone), ("beside Apache Kafka", beside))
    judged = [(title, [figure for figure in figures if figure.target]) for title, figures in titles]
    panels = [(title, figures) for title, figures in judged if figures]
    rows = [len(figures) for _, figures in panels]
    page, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(9, 1.2 + 0.27 * sum(rows)),
        height_ratios=rows,
        squeeze=False,
        layout="constrained",
    )
    for axis, (title, figures) in zip(axes[:, 0], panels, strict=True):
        _draw_panel(axis, title, figures)
    page.savefig(path, dpi=110)
    pyplot.close(page)


def _draw_panel(axis: Any, title: str, figures: Sequence[Figure]) -> None:
    values = [headroom(figure) for figure in figures]
    labels = [f"{figure.group}: {figure.name}" for figure in figures]
    colours = [REACHED if figure.passed else MISSED for figure in figures]
    bars = axis.barh(labels, values, color=colours)
    axis.bar_label(bars, [f"{value:.2g}" for value in values], padding=3, fontsize=8)
    axis.axvline(1.0, color="#333333", linewidth=1)
    axis.set_xscale("log")
    axis.set_xlim(min([0.5, *values]) * 0.8, max([2.0, *values]) * 1.4)
    axis.invert_yaxis()
    axis.tick_params(axis="y", labelsize=8)
    axis.set_title(f"Times better than the target, {title}", fontsize=10, loc="left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
