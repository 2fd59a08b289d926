"""Offset resets of groups of any kind: the options, the plan made from them, its report.

A plan is made from the group's present offsets and both ends of each log; every new offset is clamped to
them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.log_offsets import LogOffsets, Place, ends_of, log_offsets
from forebay.cli.messages.positions import TIME_HELP, time_option
from forebay.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

_OFFSET_MAX = 2**63 - 1


class Logs(NamedTuple):
    """The inputs for a new offset."""

    current: Mapping[Place, int]
    """The present offsets of the group."""
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    at_time: Mapping[Place, int]
    gone: Set[Place]
    """Partitions that no longer exist: their topic was deleted."""


class NewOffset(NamedTuple):
    topic: str
    partition: int
    current: int | None
    new_offset: int
    lag: int


Target: TypeAlias = Callable[[Logs, Place], int]
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

    def __init__(self, to: Mapping[str, Any], topics: Sequence[str], **more: Target) -> None:
        """`more` are the targets of further options. Raises UsageError."""
        self._wanted = _target(to, more)
        self._timestamp_ms = time_option(to["to_time"])
        self._topics = topics

    def places(self, client: Client, admin: AdminClient, known: Iterable[Place]) -> list[Place]:
        """The partitions that the options name, or else all known ones."""
        return _chosen_partitions(client, admin, self._topics) if self._topics else sorted(known)

    def plan(
        self, admin: AdminClient, places: Sequence[Place], current: Mapping[Place, int]
    ) -> list[NewOffset]:
        """A new offset for each existing partition; the others are named on stderr."""
        logs = _look_at_logs(admin, places, current, self._timestamp_ms)
        for topic, partition in sorted(logs.gone):
            click.echo(f"left out: {topic}-{partition} is there no more", err=True)
        there = (place for place in places if place not in logs.gone)
        return [_new_offset(logs, place, self._wanted(logs, place)) for place in there]


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


def _target(to: Mapping[str, Any], more: Mapping[str, Target]) -> Target:
    """The wanted offset, not yet clamped."""
    targets: dict[str, Target] = {
        "to_earliest": lambda logs, place: logs.starts[place],
        "to_latest": lambda logs, place: logs.ends[place],
        "to_offset": lambda _logs, _place: int(to["to_offset"]),
        "to_time": lambda logs, place: logs.at_time.get(place, logs.ends[place]),
        **more,
    }
    given = [option for option, value in to.items() if value is not None and value is not False]
    if len(given) != 1:
        options = ", ".join(f"--{option.replace('_', '-')}" for option in targets)
        raise click.UsageError(f"give one of {options}")
    return targets[given[0]]


def _chosen_partitions(client: Client, admin: AdminClient, topics: Iterable[str]) -> list[Place]:
    """The partitions that TOPIC and TOPIC:0,1 stand for."""
    chosen: set[Place] = set()
    for text in topics:
        match = re.fullmatch(r"([^:]+)(?::(\d+(?:,\d+)*))?", text)
        if match is None:
            raise click.UsageError(f"{text!r} is not TOPIC or TOPIC:0,1")
        known = client.partitions(admin, match[1])
        numbers = [int(number) for number in match[2].split(",")] if match[2] else known
        for number in numbers:
            if number not in known:
                raise CommandError(f"topic {match[1]} has no partition {number}: it has 0 to {known[-1]}")
        chosen |= {(match[1], number) for number in numbers}
    return sorted(chosen)


def _look_at_logs(
    admin: AdminClient, places: Sequence[Place], current: Mapping[Place, int], timestamp_ms: int | None
) -> Logs:
    from confluent_kafka.admin import OffsetSpec

    starts, ends = ends_of(admin, places)
    at_time = LogOffsets({}, {})
    if timestamp_ms is not None:
        at_time = log_offsets(admin, places, OffsetSpec.for_timestamp(timestamp_ms))
    gone = _check(starts.problems | ends.problems | at_time.problems)
    return Logs(current, starts.found, ends.found, at_time.found, gone)


def _check(problems: Mapping[Place, KafkaError]) -> set[Place]:
    """The partitions that no longer exist. Any other problem ends the command: no partial resets."""
    from confluent_kafka import KafkaError

    gone = {place for place, error in problems.items() if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART}
    unknown = [
        f"{topic}-{partition}: {error.str().rstrip('.')} ({error.name()})"
        for (topic, partition), error in sorted(problems.items())
        if (topic, partition) not in gone
    ]
    if unknown:
        raise CommandError(
            "\n".join(
                ["nothing was changed, these partitions cannot be asked for their offsets now:", *unknown]
            )
        )
    return gone


def _new_offset(logs: Logs, place: Place, wanted: int) -> NewOffset:
    new_offset = min(max(wanted, logs.starts[place]), logs.ends[place])
    return NewOffset(*place, logs.current.get(place), new_offset, logs.ends[place] - new_offset)
