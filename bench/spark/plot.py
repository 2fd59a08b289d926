"""One picture: rows per second through either connector, and the shortest micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.report import Figure, rounded

OURS, THEIRS = "#2a7f62", "#8a94a0"
BAR = 0.38


def draw(path: Path, figures: Sequence[Figure]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = [(name, list(group)) for name, group in groupby(figures, key=lambda figure: figure.group)]
    heights = [len(group) + 0.8 for _, group in panels]
    page, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(8.5, 0.9 + 0.62 * sum(heights)),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for axis, (name, group) in zip(axes[:, 0], panels, strict=True):
        _panel(axis, name, group)
    axes[0, 0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, frameon=False)
    page.suptitle("Spark on Forebay: 2 cores, 2 partitions", fontsize=11, x=0.01, ha="left")
    page.savefig(path, dpi=120)
    pyplot.close(page)


def _panel(axis: Any, name: str, figures: Sequence[Figure]) -> None:
    rows = range(len(figures))
    ours = [figure.value for figure in figures]
    theirs = [figure.limit or 0.0 for figure in figures]
    axis.barh([row - BAR / 2 for row in rows], ours, BAR, color=OURS, label="forebay")
    if any(theirs):
        axis.barh([row + BAR / 2 for row in rows], theirs, BAR, color=THEIRS, label="Spark's Kafka connector")
    for row, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        axis.text(mine, row - BAR / 2, f" {rounded(mine)}", fontsize=8, va="center")
        if other:
            axis.text(other, row + BAR / 2, f" {rounded(other)}", fontsize=8, va="center")
    axis.set_yticks(list(rows), [figure.name for figure in figures], fontsize=8)
    axis.set_xlim(0, 1.12 * max([*ours, *theirs]))
    axis.set_title(f"{name}, {figures[0].unit}", fontsize=9, loc="left")
    axis.tick_params(axis="x", labelsize=8)
    axis.invert_yaxis()
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
