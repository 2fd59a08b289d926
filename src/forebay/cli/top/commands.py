"""`forebay top`: brokers, rates, the busiest topics, the groups furthest behind, and what is wrong."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.output import json_option, print_json

if TYPE_CHECKING:
    from forebay.cli.top.reading import Reader
    from forebay.cli.top.snapshot import Overview

_ROWS_AT_ONCE = 10


@click.command()
@click.option("--once", is_flag=True, help="Print it once, after one interval, and end.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    help="Seconds between two looks; rates are between them.",
)
@click.option(
    "--rows",
    type=click.IntRange(1, 1000),
    default=_ROWS_AT_ONCE,
    show_default=True,
    help="How many topics and groups to show.",
)
@click.option("--internal", is_flag=True, help="Also topics that brokers keep for themselves.")
@json_option
@client_options
def top(once: bool, interval: float, rows: int, internal: bool, as_json: bool, client: Client) -> None:
    """Show what a cluster does: brokers, rates, topics, lag, problems.

    Refreshes until Ctrl-C at a terminal; in a pipe, or with --once or --json, it is printed once.
    """
    from forebay.cli.top.reading import Reader
    from forebay.cli.top.snapshot import overview

    with Reader(client) as reader:
        if once or as_json or not sys.stdout.isatty():
            before = reader.read()
            time.sleep(interval)
            _print(overview(before, reader.read(), internal=internal, rows=rows), as_json=as_json)
        else:
            with contextlib.suppress(KeyboardInterrupt):  # which is how it ends
                _show_live(reader, interval, rows=rows, internal=internal)


def _print(found: Overview, *, as_json: bool) -> None:
    from forebay.cli.top.screen import as_dict, print_overview

    if as_json:
        print_json(as_dict(found))
    else:
        print_overview(found)


def _show_live(reader: Reader, interval: float, *, rows: int, internal: bool) -> None:
    from rich.live import Live

    from forebay.cli.top.screen import render, waiting
    from forebay.cli.top.snapshot import overview

    before = reader.read()
    first = overview(None, before, internal=internal, rows=rows)
    with Live(render(first), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                now = reader.read()
            except CommandError as error:  # brokers come back
                live.update(waiting(str(error)), refresh=True)
                continue
            live.update(render(overview(before, now, internal=internal, rows=rows)), refresh=True)
            before = now
