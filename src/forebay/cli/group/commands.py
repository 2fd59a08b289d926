"""`forebay group list|describe|reset-offsets|remove-member|delete`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli import deletion
from forebay.cli.client import REQUEST_SECONDS, Client, CommandError, client_options, failed, settle
from forebay.cli.group.reset_offsets import reset_offsets
from forebay.cli.output import json_option, lag_text, print_json, print_table, seconds_text
from forebay.operations.groups.group_admin import remove_member
from forebay.operations.groups.group_lag import (
    PartitionLag,
    assigned,
    describe_group,
    group_lag,
    group_state,
    owners_of,
    total_lag_seconds,
    word,
)
from forebay.operations.messages.log_offsets import Place

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command(name="list")
@json_option
@client_options
def list_(as_json: bool, client: Client) -> None:
    """List the groups."""
    admin = client.admin()
    answer = settle(admin.list_consumer_groups(request_timeout=REQUEST_SECONDS))
    if answer.errors:  # a list without those of a broker that did not answer would look complete
        raise failed(answer.errors[0])
    found = answer.valid or ()
    rows = [
        {
            "group": each.group_id,
            "state": group_state(each),
            "type": word(each.type),
            "simple": each.is_simple_consumer_group,
        }
        for each in sorted(found, key=lambda each: each.group_id)
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("GROUP", "STATE", "TYPE"), [list(row.values())[:3] for row in rows])
    else:
        click.echo("no groups yet: one begins when a consumer joins it or commits for it", err=True)


@group.command()
@click.argument("name")
@json_option
@client_options
def describe(name: str, as_json: bool, client: Client) -> None:
    """Show the members of a group, and how far it is behind: in messages and in seconds."""
    admin = client.admin()
    found = describe_group(admin, name)
    owners = owners_of(found)
    lags = group_lag(client, admin, name, owners)
    if not lags and not found.members and group_state(found) == "Dead":
        raise no_group(name)
    described = _as_dict(found, lags, owners)
    if as_json:
        print_json(described)
    else:
        _print_description(described)


group.add_command(reset_offsets)


@group.command(name="remove-member")
@click.argument("name")
@click.argument("member")
@client_options
def remove_member_(name: str, member: str, client: Client) -> None:
    """Remove a member of a group: its partitions go to the others.

    For one that hangs. A consumer that is still alive notices it, and joins again. `forebay group describe`
    shows the members.
    """
    remove_member(client, client.admin(), name, member)
    click.echo(f"removed member {member} from group {name}")


@group.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def delete(names: tuple[str, ...], yes: bool, client: Client) -> None:
    """Delete groups without members, with their offsets."""
    if not yes:
        deletion.confirm(names, "every offset committed there")
    admin = client.admin()
    futures = admin.delete_consumer_groups(list(names), request_timeout=REQUEST_SECONDS)
    deletion.settle_each("group", futures)


def no_group(name: str) -> CommandError:
    return CommandError(f"there is no group {name}: `forebay group list` shows what there is")


def _as_dict(
    found: ConsumerGroupDescription, lags: Sequence[PartitionLag], owners: Mapping[Place, str]
) -> dict[str, Any]:
    partitions = [_lag_dict(each, owners.get((each.topic, each.partition))) for each in lags]
    return {
        "group": found.group_id,
        "state": group_state(found),
        "type": word(found.type),
        "assignor": found.partition_assignor or None,
        "coordinator": found.coordinator.id if found.coordinator else None,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host,
                "instance": member.group_instance_id,
                "partitions": len(assigned(member)),
            }
            for member in found.members
        ],
        "partitions": partitions,
        "lag": sum(each.lag or 0 for each in lags),
        "lag_seconds": total_lag_seconds(partitions),
    }


def _lag_dict(lag: PartitionLag, member: str | None) -> dict[str, Any]:
    return {
        "topic": lag.topic,
        "partition": lag.partition,
        "committed": lag.committed,
        "end_offset": lag.end_offset,
        "lag": lag.lag,
        "lag_seconds": lag.lag_seconds,
        "member": member,
    }


def _print_description(group: Mapping[str, Any]) -> None:
    assignor = f"  assignor {group['assignor']}" if group["assignor"] else ""
    click.echo(f"group {group['group']}  {group['state']}  {group['type']}{assignor}")
    if group["members"]:
        rows = [list(member.values()) for member in group["members"]]
        print_table(("MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS"), rows)
        click.echo()
    headers = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "SECONDS", "MEMBER")
    rows = [
        [*list(each.values())[:5], seconds_text(each["lag_seconds"]), each["member"]]
        for each in group["partitions"]
    ]
    print_table(headers, rows)
    click.echo(f"total lag: {lag_text(group['lag'], group['lag_seconds'])}")
