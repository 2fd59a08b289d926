"""`forebay share describe`: members, progress, deliveries under way, and settings of a share group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option, lag_text, print_json, print_table, seconds_text
from forebay.operations.groups.share_description import describe_share_group
from forebay.operations.messages.message_ages import message_ages


@click.command()
@click.argument("name")
@json_option
@client_options
def describe(name: str, as_json: bool, client: Client) -> None:
    """Show the members of a share group, how far it is behind, and its settings."""
    described = describe_share_group(client, name, partial(message_ages, client))
    if as_json:
        print_json(described)
    else:
        _print_description(described)


def _print_description(group: Mapping[str, Any]) -> None:
    click.echo(f"share group {group['group']}  {group['state']}")
    if group["members"]:
        rows = [[*list(each.values())[:3], ",".join(each["partitions"]) or None] for each in group["members"]]
        print_table(("MEMBER", "CLIENT", "HOST", "PARTITIONS"), rows)
        click.echo()
    rows = [
        [*list(each.values())[:4], seconds_text(each["lag_seconds"]), each["members"]]
        for each in group["partitions"]
    ]
    print_table(("TOPIC", "PARTITION", "START", "LAG", "SECONDS", "MEMBERS"), rows)
    for each in group["partitions"]:
        if each["problem"]:
            click.echo(f"{each['topic']}-{each['partition']}: {each['problem']}", err=True)
    click.echo(f"total lag: {lag_text(group['lag'], group['lag_seconds'])}\n")
    print_table(("SETTING", "VALUE"), [(key, value or None) for key, value in group["settings"].items()])
    _print_windows([each for each in group["partitions"] if each["window"] is not None])


def _print_windows(partitions: Sequence[Mapping[str, Any]]) -> None:
    """Print the deliveries under way, and their members."""
    if not partitions:
        return
    click.echo()
    rows = [
        [
            each["topic"],
            each["partition"],
            f"{each['window']['offsets']}/{each['window']['offsets_max']}",
            each["window"]["held"],
            each["window"]["waiting_for_retry"],
            each["window"]["dead_letters_waiting"],
        ]
        for each in partitions
    ]
    print_table(("TOPIC", "PARTITION", "WINDOW", "HELD", "RETRY", "DEAD"), rows)
    holders = [
        [holder["member"], f"{each['topic']}-{each['partition']}", holder["records"], _lock_s(holder)]
        for each in partitions
        for holder in each["window"]["holders"]
    ]
    if holders:
        click.echo()
        print_table(("HOLDER", "PARTITION", "RECORDS", "LOCKED FOR"), holders)
    for each in partitions:
        if problem := each["window"]["dead_letter_problem"]:
            click.echo(f"{each['topic']}-{each['partition']}: dead letters wait: {problem}", err=True)


def _lock_s(holder: Mapping[str, Any]) -> str:
    return f"{holder['oldest_lock_ms'] / 1000:.1f} s"
