"""`forebay group reset-offsets`: first shows what would be committed, and does it when told to.

A plan is made from what is committed and from both ends of each log; every new offset is brought within them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from forebay.cli.client import REQUEST_SECONDS, Client, CommandError, client_options, settle
from forebay.cli.group.lag import committed_offsets, describe_group, group_state
from forebay.cli.log_offsets import LogOffsets, Place, ends_of, log_offsets
from forebay.cli.messages.positions import TIME_HELP, time_option
from forebay.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

_OFFSET_MAX = 2**63 - 1


class Logs(NamedTuple):
    """What a new offset is computed from."""

    committed: Mapping[Place, int]
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    at_time: Mapping[Place, int]
    gone: Set[Place]
    """Partitions that are there no more: their topic was deleted."""


Target = Callable[[Logs, Place], int]


@click.command(name="reset-offsets")
@click.argument("name")
@click.option("--to-earliest", is_flag=True, help="To the first message there is.")
@click.option("--to-latest", is_flag=True, help="To the end: only what comes from now on.")
@click.option(
    "--to-offset",
    metavar="N",
    type=click.IntRange(0, _OFFSET_MAX),
    help="To this offset, in every partition.",
)
@click.option("--to-time", metavar="WHEN", help=f"To the first message at or after {TIME_HELP}.")
@click.option(
    "--shift-by", metavar="N", type=int, help="Forwards, or backwards when negative (--shift-by=-10)."
)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:P,P]",
    multiple=True,
    help="Only this topic, or only these partitions of it; may be repeated.  [default: all that the group"
    " has committed]",
)
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@json_option
@client_options
def reset_offsets(
    name: str, topics: tuple[str, ...], execute: bool, as_json: bool, client: Client, **to: Any
) -> None:
    """Move the committed offsets of a group that has no members.

    \b
      forebay group reset-offsets billing --to-earliest
      forebay group reset-offsets billing --to-time 2h --topic orders --execute
      forebay group reset-offsets billing --shift-by=-10 --topic orders:0,3 --execute
    """
    target, timestamp_ms = _target(to), time_option(to["to_time"])
    admin = client.admin()
    committed = committed_offsets(admin, name)
    places = _chosen(client, admin, topics) if topics else sorted(committed)
    if not places:
        raise CommandError(f"group {name} has committed nothing yet: say with --topic what to reset")
    logs = _logs(admin, places, committed, timestamp_ms)
    rows = _plan(places, logs, target)
    for topic, partition in sorted(logs.gone):
        click.echo(f"left out: {topic}-{partition} is there no more", err=True)
    if not rows:
        raise CommandError(f"nothing is there any more of what group {name} has committed")
    if execute:
        _refuse_active(admin, name)
        _alter(admin, name, rows)
    _print_reset(name, rows, execute, as_json)


def _target(to: Mapping[str, Any]) -> Target:
    """The wanted offset, not yet within bounds."""
    given = [option for option, value in to.items() if value is not None and value is not False]
    if len(given) != 1:
        raise click.UsageError("give one of --to-earliest, --to-latest, --to-offset, --to-time, --shift-by")
    targets: dict[str, Target] = {
        "to_earliest": lambda logs, place: logs.starts[place],
        "to_latest": lambda logs, place: logs.ends[place],
        "to_offset": lambda _logs, _place: int(to["to_offset"]),
        "to_time": lambda logs, place: logs.at_time.get(place, logs.ends[place]),
        # Where nothing was committed, the shift begins at the first message.
        "shift_by": lambda logs, place: logs.committed.get(place, logs.starts[place]) + int(to["shift_by"]),
    }
    return targets[given[0]]


def _logs(
    admin: AdminClient, places: Sequence[Place], committed: Mapping[Place, int], timestamp_ms: int | None
) -> Logs:
    from confluent_kafka.admin import OffsetSpec

    starts, ends = ends_of(admin, places)
    at_time = LogOffsets({}, {})
    if timestamp_ms is not None:
        at_time = log_offsets(admin, places, OffsetSpec.for_timestamp(timestamp_ms))
    gone = _check(starts.problems | ends.problems | at_time.problems)
    return Logs(committed, starts.found, ends.found, at_time.found, gone)


def _check(problems: Mapping[Place, KafkaError]) -> set[Place]:
    """Those that are there no more. Any other problem ends the command: a part of a reset is none."""
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


def _plan(places: Sequence[Place], logs: Logs, target: Target) -> list[dict[str, Any]]:
    rows = []
    for place in places:
        if place in logs.gone:
            continue
        new_offset = min(max(target(logs, place), logs.starts[place]), logs.ends[place])
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": logs.committed.get(place),
                "new_offset": new_offset,
                "lag": logs.ends[place] - new_offset,
            }
        )
    return rows


def _chosen(client: Client, admin: AdminClient, topics: Iterable[str]) -> list[Place]:
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


def _refuse_active(admin: AdminClient, name: str) -> None:
    found = describe_group(admin, name)
    state = group_state(found)
    if state not in ("Empty", "Dead"):
        raise CommandError(
            f"group {name} is {state} with {len(found.members)} members: stop its consumers first, "
            f"else they would commit over the reset"
        )


def _alter(admin: AdminClient, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(row["topic"], row["partition"], row["new_offset"]) for row in rows]
    request = ConsumerGroupTopicPartitions(name, places)
    done = settle(admin.alter_consumer_group_offsets([request], request_timeout=REQUEST_SECONDS)[name])
    problems = [
        f"{place.topic}-{place.partition}: {place.error.str()}"
        for place in done.topic_partitions or ()
        if place.error is not None
    ]
    if problems:
        raise CommandError("\n".join(problems))


def _print_reset(name: str, rows: Sequence[Mapping[str, Any]], executed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"group": name, "executed": executed, "partitions": rows})
        return
    print_table(("TOPIC", "PARTITION", "COMMITTED", "NEW", "LAG"), [list(row.values()) for row in rows])
    if executed:
        click.echo(f"reset {len(rows)} partitions of group {name}", err=True)
    else:
        click.echo("nothing was changed: add --execute to do it", err=True)
