"""`forebay group reset-offsets`: first shows what would be committed, and commits it with --execute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.client import REQUEST_SECONDS, Client, CommandError, settle
from forebay.cli.offset_reset import Reset, print_reset, reset_options
from forebay.operations.group_lag import committed_offsets, describe_group, group_state
from forebay.operations.log_offsets import Place
from forebay.operations.offset_reset import Logs, NewOffset

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@click.command(name="reset-offsets")
@click.argument("name")
@reset_options(
    "committed",
    click.option(
        "--shift-by", metavar="N", type=int, help="Forwards, or backwards when negative (--shift-by=-10)."
    ),
)
def reset_offsets(
    name: str, topics: tuple[str, ...], execute: bool, as_json: bool, client: Client, **to: Any
) -> None:
    """Move the committed offsets of a group that has no members.

    \b
      forebay group reset-offsets billing --to-earliest
      forebay group reset-offsets billing --to-time 2h --topic orders --execute
      forebay group reset-offsets billing --shift-by=-10 --topic orders:0,3 --execute
    """

    def shifted(logs: Logs, place: Place) -> int:
        # Where nothing was committed, the shift begins at the first message.
        return logs.current.get(place, logs.starts[place]) + int(to["shift_by"])

    reset = Reset(to, topics, shift_by=shifted)
    admin = client.admin()
    committed = committed_offsets(admin, name)
    places = reset.places(client, admin, committed)
    if not places:
        raise CommandError(f"group {name} has committed nothing yet: say with --topic what to reset")
    planned = reset.plan(admin, places, committed)
    if not planned:
        raise CommandError(f"nothing is there any more of what group {name} has committed")
    if execute:
        _refuse_active(admin, name)
        _alter(admin, name, planned)
    print_reset(name, planned, execute, as_json, current="committed")


def _refuse_active(admin: AdminClient, name: str) -> None:
    found = describe_group(admin, name)
    state = group_state(found)
    if state not in ("Empty", "Dead"):
        raise CommandError(
            f"group {name} is {state} with {len(found.members)} members: stop its consumers first, "
            f"else they would commit over the reset"
        )


def _alter(admin: AdminClient, name: str, planned: Sequence[NewOffset]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(each.topic, each.partition, each.new_offset) for each in planned]
    request = ConsumerGroupTopicPartitions(name, places)
    done = settle(admin.alter_consumer_group_offsets([request], request_timeout=REQUEST_SECONDS)[name])
    problems = [
        f"{place.topic}-{place.partition}: {place.error.str()}"
        for place in done.topic_partitions or ()
        if place.error is not None
    ]
    if problems:
        raise CommandError("\n".join(problems))
