"""One picture for each question that the page of performance answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from bench.report import Figure, rounded

AHEAD, BEHIND = "#2a7f62", "#8a94a0"
COSTS = ("s/GB", "µs/request", "µs/message", "µs/row", "µs", "ms", "MB", "bytes", "s", "%")
"""Units of which less is better."""
TICKS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64)


def advantage(figure: Figure) -> float:
    """How many times better than what it is compared with: less where less is good, else more."""
    assert figure.ratio is not None
    return 1 / max(figure.ratio, 1e-9) if figure.unit in COSTS else figure.ratio


def draw_advantages(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Bars that begin at 1, to the right where Forebay is ahead and to the left where it is behind."""
    values = [advantage(figure) for figure in figures]

    def label(figure: Figure) -> str:
        assert figure.limit is not None
        both = f"{rounded(figure.value)} against {rounded(figure.limit)} {figure.unit}"
        return f"{_times(advantage(figure))} ({both})"

    _draw(path, title, figures, values, label, start=1.0)


def draw_limits(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Bars from nothing to 1, which is all that the machine can do."""
    values = [advantage(figure) for figure in figures]
    _draw(
        path,
        title,
        figures,
        values,
        lambda figure: f"{advantage(figure):.0%} of {figure.limit_name}",
        start=0.0,
    )


def draw_growth(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Bars from nothing: 1 is the cost on an empty broker."""

    def cost(figure: Figure) -> float:
        assert figure.ratio is not None
        return figure.ratio

    _draw(
        path, title, figures, [cost(figure) for figure in figures], lambda one: _times(cost(one)), start=0.0
    )


def _times(value: float) -> str:
    return f"{value:.0f}x" if value >= 10 else f"{value:.2g}x"


def _draw(
    path: Path,
    title: str,
    figures: Sequence[Figure],
    values: Sequence[float],
    label: Callable[[Figure], str],
    *,
    start: float,
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    page, axis = pyplot.subplots(figsize=(9, 0.9 + 0.3 * len(figures)), layout="constrained")
    names = [f"{figure.group}: {figure.name}" for figure in figures]
    colours = [AHEAD if value >= 1 or start == 0 else BEHIND for value in values]
    axis.barh(names, [value - start for value in values], left=start, color=colours)
    for row, (figure, value) in enumerate(zip(figures, values, strict=True)):
        axis.text(max(value, start), row, f" {label(figure)}", fontsize=8, va="center")
    axis.axvline(1.0, color="#333333", linewidth=1)
    if start:
        axis.set_xscale("log")
        axis.set_xlim(min([0.8, *values]) * 0.9, max([2.0, *values]) * 6)
        axis.set_xticks([tick for tick in TICKS if axis.get_xlim()[0] <= tick <= axis.get_xlim()[1]])
        axis.minorticks_off()
    else:
        axis.set_xlim(0, max([1.0, *values]) * 1.35)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.invert_yaxis()
    axis.tick_params(axis="both", labelsize=8)
    axis.set_title(title, fontsize=10, loc="left")
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, dpi=110)
    pyplot.close(page)
