"""`forebay group reset-offsets`: first shows what would be committed, and commits it with --execute."""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.client import Client, CommandError
from forebay.cli.offset_reset import Reset, print_reset, reset_options
from forebay.operations.groups.group_admin import alter_offsets, refuse_active
from forebay.operations.groups.group_lag import committed_offsets


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
    reset = Reset(to, topics)
    admin = client.admin()
    committed = committed_offsets(admin, name)
    places = reset.places(client, admin, committed)
    if not places:
        raise CommandError(f"group {name} has committed nothing yet: say with --topic what to reset")
    planned = reset.plan(admin, places, committed)
    if not planned:
        raise CommandError(f"nothing is there any more of what group {name} has committed")
    if execute:
        refuse_active(admin, name)
        alter_offsets(admin, name, planned)
    print_reset(name, planned, execute, as_json, current="committed")
