"""Statistics as pictures: a PNG, or a page of HTML that holds the same picture and the tables."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.spark.extras import require
from forebay.spark.pipelines.jobs import PipelineError
from forebay.spark.pipelines.stats import SizeStats, Stats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".html")
_INK, _FAINT, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_BLUE, _DEEP, _AMBER, _RED = "#3e7cb1", "#1d4e79", "#e0a030", "#c8553d"
_PARTITIONS = (_DEEP, _AMBER, "#4f8a5b", _RED, "#6c5b9c", _BLUE, "#8a6d3b", "#2b8a8a")
"""Neighbours in a bar have different colours."""
_KEYS_SHOWN = 12
_KEY_CHARACTERS = 22
_FIRST, _LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)


def write_report(stats: Stats, path: str) -> None:
    """PNG or HTML, as the name ends."""
    check_suffix(path)
    target = Path(path)
    picture = png(stats)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(picture if target.suffix == ".png" else page(stats, picture).encode())


def check_suffix(path: str) -> None:
    if Path(path).suffix not in SUFFIXES:
        raise PipelineError(
            f"a report in {path} has no known form: end its name with {' or '.join(SUFFIXES)}"
        )


def png(stats: Stats) -> bytes:
    require("matplotlib", "spark")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Made without pyplot, which would look for a screen and keep the figure for ever.
    figure = Figure(figsize=(14, 9.2), dpi=110, facecolor="white")
    FigureCanvasAgg(figure)
    # Keys stand beside their bars, so that their panel begins further to the right.
    top = figure.add_gridspec(1, 1, left=0.06, right=0.975, top=0.865, bottom=0.665)
    left = figure.add_gridspec(
        2, 2, left=0.06, right=0.63, top=0.565, bottom=0.075, hspace=0.62, wspace=0.24, height_ratios=(1, 0.5)
    )
    right = figure.add_gridspec(1, 1, left=0.765, right=0.975, top=0.565, bottom=0.075)
    _heading(figure, stats)
    _draw_times(figure.add_subplot(top[0, 0]), stats)
    _draw_partitions(figure.add_subplot(left[0, 0]), stats)
    _draw_sizes(figure.add_subplot(left[0, 1]), stats)
    _draw_bytes(figure.add_subplot(left[1, :]), stats)
    _draw_keys(figure.add_subplot(right[0, 0]), stats)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _heading(figure: Figure, stats: Stats) -> None:
    figure.text(0.06, 0.955, stats.source, fontsize=17, fontweight="bold", color=_INK)
    facts = (
        f"{stats.messages:,} messages · {_size(stats.bytes)} · stored as {_size(stats.stored_bytes)}"
        f" (ratio {stats.compression_ratio:.2f}) · {stats.keys:,} keys · {stats.duplicates:,} duplicates"
        f" · {stats.missing_offsets:,} missing offsets · longest quiet {_duration(stats.quiet_s)}"
    )
    figure.text(0.06, 0.922, facts, fontsize=10.5, color=_FAINT)


def _draw_times(axes: Axes, stats: Stats) -> None:
    dates = require("matplotlib.dates", "spark")
    moments, messages = _unbroken(stats)
    times = dates.date2num(moments)
    _style(axes, f"Messages per {stats.time_unit}")
    axes.fill_between(times, messages, step="mid", color=_BLUE, alpha=0.25, linewidth=0)
    axes.plot(times, messages, drawstyle="steps-mid", color=_DEEP, linewidth=1.2)
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlim(*_with_margins(times[0], times[-1], dates.date2num([_FIRST, _LAST])))
    axes.set_ylim(bottom=0)


def _with_margins(first: float, last: float, bounds: Sequence[float]) -> tuple[float, float]:
    """An axis has dates, too, and cannot go beyond the last one."""
    margin = 0.005 * (last - first)
    return max(first - margin, bounds[0]), min(last + margin, bounds[1])


def _unbroken(stats: Stats) -> tuple[list[datetime], list[int]]:
    """Quiet units are drawn as zero, and the line begins and ends there."""
    step = timedelta(**{f"{stats.time_unit}s": 1})
    times: list[datetime] = []
    messages: list[int] = []
    for point in stats.times:
        if not times or point.at - times[-1] > step:
            edges = [*([times[-1] + step] if times else []), _moved(point.at, -step)]
            times += edges
            messages += [0] * len(edges)
        times.append(point.at)
        messages.append(point.messages)
    return [*times, _moved(times[-1], step)], [*messages, 0]


def _moved(moment: datetime, by: timedelta) -> datetime:
    """No further than dates go: brokers take any timestamp (`stats.moment_of`)."""
    try:
        return moment + by
    except OverflowError:
        return moment


def _draw_partitions(axes: Axes, stats: Stats) -> None:
    _style(axes, f"Messages per partition, skew {stats.skew:.2f}")
    counts = [found.messages for found in stats.partitions]
    numbers = [found.partition for found in stats.partitions]
    mean = sum(counts) / len(counts)
    axes.bar(
        numbers, counts, color=[_AMBER if count > 1.25 * mean else _BLUE for count in counts], width=0.72
    )
    axes.axhline(mean, color=_RED, linewidth=1, linestyle=(0, (4, 3)))
    axes.annotate(
        "mean", (1, mean), xycoords=("axes fraction", "data"), color=_RED, fontsize=8, ha="right", va="bottom"
    )
    if len(numbers) <= 16:
        axes.set_xticks(numbers)
    axes.set_xlabel("partition", fontsize=9, color=_FAINT)


def _draw_sizes(axes: Axes, stats: Stats) -> None:
    _style(axes, "Messages per size")
    sizes = size_bins(stats.sizes)
    labels = [_size(start) for start, _ in sizes]
    axes.bar(range(len(labels)), [messages for _, messages in sizes], color=_BLUE, width=0.92)
    every = -(-len(labels) // 8)
    axes.set_xticks(range(0, len(labels), every), labels[::every])
    axes.set_xlabel("key and value, from this size to its double", fontsize=9, color=_FAINT)


def size_bins(sizes: Sequence[SizeStats]) -> list[tuple[int, int]]:
    """Where each size begins, and its messages; those without a message that lie between others too."""
    bins: list[tuple[int, int]] = []
    for found in sizes:
        while bins and (following := 2 * bins[-1][0] or 1) < found.bytes_from:
            bins.append((following, 0))
        bins.append((found.bytes_from, found.messages))
    return bins


def _draw_bytes(axes: Axes, stats: Stats) -> None:
    _style(axes, "Share of partitions in bytes")
    left = 0.0
    for at, found in enumerate(stats.partitions):
        width = found.bytes / max(1, stats.bytes)
        shade = _PARTITIONS[at % len(_PARTITIONS)]
        axes.barh([0], [width], left=left, color=shade, height=0.5, edgecolor="white", linewidth=0.8)
        if width > 0.045:
            axes.text(
                left + width / 2,
                0,
                f"{found.partition}\n{_size(found.bytes)}",
                ha="center",
                va="center",
                color="white",
                fontsize=8,
            )
        elif width > 0.014:
            axes.text(
                left + width / 2, 0, str(found.partition), ha="center", va="center", color="white", fontsize=7
            )
        left += width
    axes.set_xlim(0, 1)
    axes.set_yticks([])
    axes.grid(False)
    axes.xaxis.set_major_formatter(lambda value, _at: f"{value:.0%}")


def _draw_keys(axes: Axes, stats: Stats) -> None:
    shown = stats.top_keys[:_KEYS_SHOWN]
    _style(axes, f"Largest keys, the first has {stats.top_key_share:.1%}")
    if not shown:
        axes.text(
            0.5, 0.5, "no message has a key", ha="center", va="center", color=_FAINT, transform=axes.transAxes
        )
        axes.set_axis_off()
        return
    places = range(len(shown))
    axes.barh(places, [key.messages for key in shown], color=_BLUE, height=0.72)
    axes.set_yticks(places, [_short(key.key) for key in shown])
    axes.invert_yaxis()
    axes.grid(True, axis="x", color=_GRID)
    axes.grid(False, axis="y")
    axes.locator_params(axis="x", nbins=4)
    axes.set_xlabel("messages", fontsize=9, color=_FAINT)


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11.5, fontweight="bold", color=_INK, pad=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_FAINT)
    axes.tick_params(colors=_FAINT, labelsize=8.5, length=0)
    axes.grid(True, axis="y", color=_GRID)
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _at: f"{value:,.0f}")


# -- the page -----------------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #1f2933; }}
body {{ max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.1rem; margin-top: 2rem; }} img {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; }} th, td {{ padding: .25rem .9rem .25rem 0; text-align: right; }}
th {{ color: #7b8794; font-weight: 500; border-bottom: 1px solid #cbd2d9; }}
th:first-child, td:first-child {{ text-align: left; }} td {{ border-bottom: 1px solid #eef1f4; }}
</style></head><body><h1>{title}</h1>
<img alt="Messages by time, partition, size and key" src="data:image/png;base64,{picture}">
{tables}
</body></html>
"""


def page(stats: Stats, picture: bytes) -> str:
    """One file that needs no other."""
    key_row = attrgetter("key", "messages", "bytes")
    partition_row = attrgetter(
        "partition", "messages", "bytes", "first_offset", "last_offset", "missing_offsets"
    )
    tables = [
        _table("Summary", ("", ""), stats.facts().items()),
        _table(
            "Partitions",
            ("partition", "messages", "bytes", "first offset", "last offset", "missing"),
            map(partition_row, stats.partitions),
        ),
        _table("Largest keys", ("key", "messages", "bytes"), map(key_row, stats.top_keys)),
        _table("Most repeated messages", ("key", "times", "bytes"), map(key_row, stats.top_duplicates)),
    ]
    return _PAGE.format(
        title=html.escape(stats.source), picture=base64.b64encode(picture).decode(), tables="\n".join(tables)
    )


def _table(title: str, headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [_row("th", headers) if any(headers) else "", *(_row("td", row) for row in rows)]
    return f"<h2>{html.escape(title)}</h2><table>{''.join(lines)}</table>" if any(lines[1:]) else ""


def _row(tag: str, cells: Iterable[Any]) -> str:
    shown = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in shown)}</tr>"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TB"


def _duration(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} s"


def _short(key: str) -> str:
    return key if len(key) <= _KEY_CHARACTERS else f"{key[: _KEY_CHARACTERS - 1]}…"
