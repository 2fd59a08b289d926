"""Shows a person the steps while they work, and what they have done.

At a terminal each step that is under way has a line, which changes in its place. In a file there is a line
for each thing that happened.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.output import print_json

if TYPE_CHECKING:
    from forebay.spark.pipelines import Progress, Summary

_UP, _CLEAR = "\x1b[A", "\r\x1b[2K"


class Board:
    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._lines: dict[str, str] = {}
        self._drawn = 0

    def show(self, step: str, line: str) -> None:
        """The latest about a step."""
        if not self._is_terminal:
            click.echo(line, err=True)
            return
        self._lines[step] = line
        self._draw()

    def tell(self, line: str) -> None:
        """Tell of something that has happened; the line stays to be read."""
        if self._is_terminal:
            self._erase()
        click.echo(line, err=True)
        if self._is_terminal:
            self._draw()

    def ended(self, step: str) -> None:
        """The step needs no line any more."""
        if self._is_terminal:
            self._lines.pop(step, None)
            self._draw()

    def close(self) -> None:
        if self._is_terminal:
            self._erase()
            self._lines.clear()

    def _draw(self) -> None:
        self._erase()
        width = shutil.get_terminal_size().columns - 1
        for line in self._lines.values():
            click.echo(line[:width], err=True)
        self._drawn = len(self._lines)

    def _erase(self) -> None:
        click.echo(f"{_UP}{_CLEAR}" * self._drawn, nl=False, err=True)
        self._drawn = 0


def progress_text(progress: Progress) -> str:
    backlog = "" if progress.backlog is None else f", {progress.backlog:,} to go"
    written = "" if progress.rows_out is None else f", {progress.rows_out:,} written"
    lost = f", {progress.lost:,} lost" if progress.lost else ""
    rows = f"{progress.rows:,} rows{written}{lost}"
    return f"batch {progress.batch}, {rows}, {progress.rows_per_s:,.0f}/s{backlog}"


def print_summaries(summaries: Sequence[Summary], as_json: bool) -> None:
    if as_json:
        values = [{"pipeline": summary.title, **_json_names(summary.facts)} for summary in summaries]
        print_json(values[0] if len(values) == 1 else values)
        return
    for summary in summaries:
        click.echo(summary.title)
        width = max(map(len, summary.facts), default=0)
        for name, value in summary.facts.items():
            click.echo(f"  {name.ljust(width)}  {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _json_names(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(" ", "_"): value for name, value in facts.items()}
