"""`forebay share reset-offsets`: first shows the new start offsets, and sets them with --execute.

A reset restarts the group there: records that it had accepted after the new offset come again, and delivery
counts begin at one.
"""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.client import Client, CommandError
from forebay.cli.offset_reset import Reset, print_reset, reset_options
from forebay.operations.groups.share_admin import ShareAdmin


@click.command(name="reset-offsets")
@click.argument("name")
@reset_options("begun with")
def reset_offsets(
    name: str, topics: tuple[str, ...], execute: bool, as_json: bool, client: Client, **to: Any
) -> None:
    """Let a share group that has no members go on elsewhere.

    \b
      forebay share reset-offsets thumbnails --to-earliest
      forebay share reset-offsets thumbnails --to-time 2h --topic jobs --execute
      forebay share reset-offsets thumbnails --to-offset 4711 --topic jobs:0 --execute
    """
    reset = Reset(to, topics)
    admin = client.admin()
    with ShareAdmin(client) as shares:
        progress = shares.progress(name)
        places = reset.places(client, admin, progress)
        if not places:
            raise CommandError(
                f"share group {name} has begun with no topic yet: say with --topic what to reset"
            )
        starts = {
            place: each.start_offset for place, each in progress.items() if each.start_offset is not None
        }
        planned = reset.plan(admin, places, starts)
        if not planned:
            raise CommandError(f"nothing is there any more of what share group {name} has begun with")
        if execute:
            shares.alter(name, planned)
    print_reset(name, planned, execute, as_json, current="start_offset")
