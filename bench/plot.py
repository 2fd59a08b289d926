"""One picture: how far the figures are from their targets, and from Apache Kafka's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.report import Figure

REACHED, MISSED, TOLD = "#2a7f62", "#c8553d", "#8a94a0"
COSTS = ("s/GB", "µs/request", "µs", "MB", "s")
"""Units of which less is better."""
TICKS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)


def headroom(figure: Figure) -> float:
    """How many times better than its target: 1 is the target itself, 2 is twice as good."""
    number = figure.ratio if figure.judged == "ratio" else figure.value
    assert number is not None
    if figure.at_least is not None:
        return number / figure.at_least
    assert figure.at_most is not None
    return figure.at_most / max(number, 1e-9)


def has_headroom(figure: Figure) -> bool:
    """Whether one can be better than the target at all: than none of something nobody is."""
    return bool(figure.target) and figure.at_most != 0


def advantage(figure: Figure) -> float:
    """How many times better than the other broker: less where less is good, else more."""
    assert figure.ratio is not None
    return 1 / figure.ratio if figure.unit in COSTS else figure.ratio


def advantage_wanted(figure: Figure) -> float | None:
    if figure.at_least is not None:
        return figure.at_least
    return None if figure.at_most is None else 1 / figure.at_most


def draw(path: Path, alone: Sequence[Figure], beside: Sequence[Figure]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    judged = [figure for figure in alone if has_headroom(figure)]
    panels = [panel for panel in ((judged, _draw_targets), (beside, _draw_advantages)) if panel[0]]
    rows = [len(figures) for figures, _ in panels]
    page, axes = pyplot.subplots(
        len(panels),
        1,
        figsize=(9, 1.2 + 0.27 * sum(rows)),
        height_ratios=rows,
        squeeze=False,
        layout="constrained",
    )
    for axis, (figures, draw_panel) in zip(axes[:, 0], panels, strict=True):
        draw_panel(axis, figures)
    page.savefig(path, dpi=110)
    pyplot.close(page)


def _draw_targets(axis: Any, figures: Sequence[Figure]) -> None:
    values = [headroom(figure) for figure in figures]
    _draw_bars(axis, figures, values)
    axis.set_title("Beside the raw limits: times better than the target", fontsize=10, loc="left")


def _draw_advantages(axis: Any, figures: Sequence[Figure]) -> None:
    _draw_bars(axis, figures, [advantage(figure) for figure in figures])
    for row, figure in enumerate(figures):
        if (wanted := advantage_wanted(figure)) is not None:
            axis.plot([wanted, wanted], [row - 0.4, row + 0.4], color="#333333", linewidth=2)
    title = "Beside Apache Kafka: times better than Kafka (dark mark: the target)"
    axis.set_title(title, fontsize=10, loc="left")


def _draw_bars(axis: Any, figures: Sequence[Figure], values: Sequence[float]) -> None:
    """Bars that begin at 1, to the right where it is better and to the left where it is worse."""
    labels = [f"{figure.group}: {figure.name}" for figure in figures]
    colours = [{True: REACHED, False: MISSED, None: TOLD}[figure.passed] for figure in figures]
    axis.barh(labels, [value - 1 for value in values], left=1, color=colours)
    for row, value in enumerate(values):
        axis.text(
            value,
            row,
            f" {value:.3g} " if value >= 100 else f" {value:.2g} ",
            fontsize=8,
            va="center",
            ha="left" if value >= 1 else "right",
        )
    axis.axvline(1.0, color="#333333", linewidth=1)
    axis.set_xscale("log")
    axis.set_xlim(min([0.5, *values]) * 0.7, max([2.0, *values]) * 1.5)
    axis.set_xticks([n for n in TICKS if axis.get_xlim()[0] <= n <= axis.get_xlim()[1]])
    axis.xaxis.set_major_formatter("{x:g}")
    axis.minorticks_off()
    axis.invert_yaxis()
    axis.tick_params(axis="y", labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
