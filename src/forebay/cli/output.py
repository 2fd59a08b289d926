"""The output of commands: a table for people at a terminal, plain columns in a pipe, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers are aligned to the right, everything else to the left."""
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    numeric = [bool(rows) and all(isinstance(row[at], int) for row in rows) for at in range(len(headers))]
    if sys.stdout.isatty():
        _print_rich(headers, cells, numeric)
    else:
        _print_plain(headers, cells, numeric)


def _print_rich(headers: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for header, number in zip(headers, numeric, strict=True):
        table.add_column(header, justify="right" if number else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def _print_plain(headers: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    """Never wrapped and never cut: a pipe has no width, and grep needs whole lines."""
    lines = [list(headers), *cells]
    widths = [max(len(line[at]) for line in lines) for at in range(len(headers))]
    for line in lines:
        columns = (
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, numeric, strict=True)
        )
        click.echo("  ".join(columns).rstrip())


def lag_text(messages: int, seconds: float | None) -> str:
    """The lag of a group: in messages, and if known in seconds."""
    text = f"{messages:,} message{'' if messages == 1 else 's'}"
    return text if seconds is None else f"{text}, {seconds_text(seconds)} s"


def seconds_text(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}"
