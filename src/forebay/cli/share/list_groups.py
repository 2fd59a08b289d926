"""`forebay share list`."""

from __future__ import annotations

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.groups.share_admin import ShareAdmin


@click.command(name="list")
@json_option
@client_options
def list_groups(as_json: bool, client: Client) -> None:
    """List the share groups, with their members and topics."""
    with ShareAdmin(client) as admin:
        rows = [
            {
                "group": name,
                "state": state,
                "members": len(admin.describe(name).members),
                "topics": sorted({topic for topic, _ in admin.progress(name)}),
            }
            for name, state in admin.states().items()
        ]
    if as_json:
        print_json(rows)
    elif rows:
        cells = [[*list(row.values())[:3], _names(row["topics"])] for row in rows]
        print_table(("GROUP", "STATE", "MEMBERS", "TOPICS"), cells)
    else:
        click.echo("no share groups yet: one begins when a share consumer joins it", err=True)


def _names(topics: object) -> str | None:
    assert isinstance(topics, list)
    return ",".join(topics) or None
