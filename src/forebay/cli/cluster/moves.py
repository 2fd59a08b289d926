"""The options that the commands for moving partitions share, and how they show moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.replicas.balancing import Move


def moving_options(command: Any) -> Any:
    """The options of the commands that move partitions."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Only show what would be moved."),
        click.option(
            "--at-once",
            type=click.IntRange(1, 10_000),
            default=20,
            show_default=True,
            help="How many partitions are moved at the same time.",
        ),
        click.option(
            "--seconds-max",
            type=click.IntRange(1),
            default=3600,
            show_default=True,
            help="Give up waiting after this time; moves that have begun go on.",
        ),
        json_option,
    ):
        command = option(command)
    return command


def print_moves(image: ClusterImage, moves: Sequence[Move]) -> None:
    if not moves:
        click.echo("nothing to move")
        return
    rows = [
        (f"{move.topic}-{move.partition}", list_text(_before(image, move)), list_text(move.replicas))
        for move in moves
    ]
    print_table(("PARTITION", "REPLICAS", "BECOME"), rows)


def print_moves_json(image: ClusterImage, moves: Sequence[Move]) -> None:
    print_json([_move_json(image, move) for move in moves])


def _move_json(image: ClusterImage, move: Move) -> dict[str, Any]:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "from": list(_before(image, move)),
        "to": list(move.replicas),
    }


def _before(image: ClusterImage, move: Move) -> Sequence[int]:
    state = image.partition(move.topic, move.partition)
    assert state is not None
    return state.target


def list_text(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "-"


def count_text(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"
