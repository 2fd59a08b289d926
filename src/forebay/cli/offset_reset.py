"""Offset resets of groups of any kind: the options, and the report of the plan made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from forebay.cli.client import Client, client_options
from forebay.cli.durations import time_option
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.groups.offset_reset import NewOffset, Target, chosen_partitions, plan_reset, target
from forebay.operations.messages.log_offsets import Place
from forebay.operations.messages.positions import TIME_HELP

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_OFFSET_MAX = 2**63 - 1


Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def reset_options(has: str, *more: Decorator) -> Decorator:
    """The options of a reset. `has`: what a group has done with its topics; `more`: further targets."""
    options: tuple[Decorator, ...] = (
        click.option("--to-earliest", is_flag=True, help="To the first message there is."),
        click.option("--to-latest", is_flag=True, help="To the end: only what comes from now on."),
        click.option(
            "--to-offset",
            metavar="N",
            type=click.IntRange(0, _OFFSET_MAX),
            help="To this offset, in every partition.",
        ),
        click.option("--to-time", metavar="WHEN", help=f"To the first message at or after {TIME_HELP}."),
        *more,
        click.option(
            "--topic",
            "topics",
            metavar="TOPIC[:P,P]",
            multiple=True,
            help="Only this topic, or only these partitions of it; may be repeated.  [default: all that the"
            f" group has {has}]",
        ),
        click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done."),
        json_option,
        client_options,
    )

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Reset:
    """The parsed options."""

    def __init__(self, to: Mapping[str, Any], topics: Sequence[str]) -> None:
        """`to` has every option that the command offers. Raises UsageError."""
        self._wanted = _target(to)
        self._timestamp_ms = time_option(to["to_time"])
        self._topics = topics

    def places(self, client: Client, admin: AdminClient, known: Iterable[Place]) -> list[Place]:
        """The partitions that the options name, or else all known ones."""
        return chosen_partitions(client, admin, self._topics) if self._topics else sorted(known)

    def plan(
        self, admin: AdminClient, places: Sequence[Place], current: Mapping[Place, int]
    ) -> list[NewOffset]:
        """A new offset for each existing partition; the others are named on stderr."""
        logs, planned = plan_reset(admin, places, current, self._wanted, self._timestamp_ms)
        for topic, partition in sorted(logs.gone):
            click.echo(f"left out: {topic}-{partition} is there no more", err=True)
        return planned


def print_reset(
    name: str, planned: Sequence[NewOffset], executed: bool, as_json: bool, *, current: str
) -> None:
    """`current` is the JSON name of the previous offset."""
    if as_json:
        keys = ("topic", "partition", current, "new_offset", "lag")
        rows = [dict(zip(keys, each, strict=True)) for each in planned]
        print_json({"group": name, "executed": executed, "partitions": rows})
        return
    print_table(("TOPIC", "PARTITION", current.removesuffix("_offset").upper(), "NEW", "LAG"), planned)
    if executed:
        click.echo(f"reset {len(planned)} partitions of group {name}", err=True)
    else:
        click.echo("nothing was changed: add --execute to do it", err=True)


def _target(to: Mapping[str, Any]) -> Target:
    given = [option for option, value in to.items() if value is not None and value is not False]
    if len(given) != 1:
        options = ", ".join(f"--{option.replace('_', '-')}" for option in to)
        raise click.UsageError(f"give one of {options}")
    (option,) = given
    return target(option, to[option] if isinstance(to[option], int) else 0)
