"""The progress of moves at a terminal, and the table of failovers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from forebay.cli.output import print_table
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.replicas.balancing import Move
from forebay.operations.cluster.cluster_state import read_image
from forebay.operations.cluster.failovers import time_text
from forebay.operations.cluster.reassignments import carry_out
from forebay.operations.wire import WireConnection
from forebay.wire.messages.describe_failovers import DescribedFailover

_ROUNDS_MAX = 10


def carry_out_showing(
    connection: WireConnection, moves: Sequence[Move], *, at_once: int, seconds_max: float
) -> None:
    with _progress(len(moves)) as show, _said_when_interrupted():
        tell(carry_out(connection, moves, at_once=at_once, seconds_max=seconds_max, show=show))


def carry_out_all(
    connection: WireConnection, decide: Callable[[ClusterImage], Sequence[Move]], **limits: Any
) -> int:
    """Carry out what is decided until nothing is left to move, and return how much it was.

    A broker that is drained may be given partitions of new topics until all brokers know of it.
    """
    count = 0
    for _ in range(_ROUNDS_MAX):
        moves = decide(read_image(connection))
        if not moves:
            break
        carry_out_showing(connection, moves, **limits)
        count += len(moves)
    return count


def tell(problems: Sequence[str]) -> None:
    for problem in problems:
        click.echo(problem, err=True)


def print_failovers(failovers: list[DescribedFailover]) -> None:
    click.echo("last failovers:")
    headers = ("AT", "BROKER", "BY", "LED", "DETECT MS", "FENCE MS", "ELECT MS", "ANNOUNCE MS")
    print_table(
        headers,
        [
            (
                time_text(each.at_ms),
                each.broker,
                each.by,
                each.partitions,
                each.detect_ms,
                each.fence_ms,
                each.elect_ms,
                each.announce_ms,
            )
            for each in failovers
        ],
    )


@contextmanager
def _said_when_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("interrupted; the moves that have begun go on: see `forebay cluster describe`", err=True)
        raise


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show how many are done: a bar at a terminal, a line for each step elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("moving partitions"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


class _Lines:
    def __init__(self, total: int) -> None:
        self._total = total
        self._shown = -1

    def __call__(self, done: int) -> None:
        if done != self._shown:
            click.echo(f"moved {done} of {self._total} partitions", err=True)
            self._shown = done
