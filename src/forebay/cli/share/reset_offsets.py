"""`forebay share reset-offsets`: first shows where the group would go on, and does it when told to.

A reset begins the group anew there: what it had accepted beyond the new offset comes again, and delivery
counts begin at one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.messages.positions import time_option
from forebay.cli.new_offsets import (
    NewOffset,
    chosen_partitions,
    look_at_logs,
    plan,
    report_reset,
    target,
    target_options,
)
from forebay.cli.output import json_option, print_json, print_table
from forebay.cli.share.share_admin import ShareAdmin


@click.command(name="reset-offsets")
@click.argument("name")
@target_options
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:P,P]",
    multiple=True,
    help="Only this topic, or only these partitions of it; may be repeated.  [default: all that the group"
    " has begun with]",
)
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@json_option
@client_options
def reset_offsets(
    name: str, topics: tuple[str, ...], execute: bool, as_json: bool, client: Client, **to: Any
) -> None:
    """Let a share group that has no members go on elsewhere.

    \b
      forebay share reset-offsets thumbnails --to-earliest
      forebay share reset-offsets thumbnails --to-time 2h --topic jobs --execute
      forebay share reset-offsets thumbnails --to-offset 4711 --topic jobs:0 --execute
    """
    wanted, timestamp_ms = target(to), time_option(to["to_time"])
    admin = client.admin()
    with ShareAdmin(client) as shares:
        progress = shares.progress(name)
        places = chosen_partitions(client, admin, topics) if topics else sorted(progress)
        if not places:
            raise CommandError(
                f"share group {name} has begun with no topic yet: say with --topic what to reset"
            )
        starts = {
            place: each.start_offset for place, each in progress.items() if each.start_offset is not None
        }
        planned = plan(places, look_at_logs(admin, places, starts, timestamp_ms), wanted)
        if not planned:
            raise CommandError(f"nothing is there any more of what share group {name} has begun with")
        if execute:
            shares.alter(name, planned)
    _print_reset(name, planned, execute, as_json)


def _print_reset(name: str, planned: Sequence[NewOffset], executed: bool, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "topic": each.topic,
                "partition": each.partition,
                "start_offset": each.current,
                "new_offset": each.new_offset,
                "lag": each.lag,
            }
            for each in planned
        ]
        print_json({"group": name, "executed": executed, "partitions": rows})
        return
    print_table(("TOPIC", "PARTITION", "START", "NEW", "LAG"), planned)
    report_reset(name, len(planned), executed)
