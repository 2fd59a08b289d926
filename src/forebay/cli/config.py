"""`forebay config get|set` for topics, brokers and groups.

What is set for all brokers is the broker with an empty name to the protocol. The client library has no such
name, so that is asked for over a connection of our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from forebay.cli.client import Client, CommandError, client_options, pairs
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.settings import alter_configs, read_configs, source_name

RESOURCES = ("topic", "broker", "group")
ALL = "all"


@click.group()
def config() -> None:
    """Read and change the settings of topics, brokers and groups."""


@config.command(name="get")
@click.argument("resource", type=click.Choice(RESOURCES))
@click.argument("name")
@click.argument("key", required=False)
@json_option
@client_options
def get(resource: str, name: str, key: str | None, as_json: bool, client: Client) -> None:
    """Show the settings of a topic or group (by name) or a broker (by node id), or the value of one KEY.

    The broker `all` has what is set for all brokers at once.
    """
    if (resource, name) == ("broker", ALL):
        entries = _read_default(client)
    else:
        entries = read_configs(client.admin(), resource, name)
    if key is not None:
        entries = [_only(entries, key)]
    if as_json:
        print_json(entries if key is None else entries[0])
    elif key is not None:
        click.echo("" if entries[0]["value"] is None else entries[0]["value"])
    else:
        rows = [(entry["name"], entry["value"], _source(entry)) for entry in entries]
        print_table(("KEY", "VALUE", "FROM"), rows)


@config.command(name="set")
@click.argument("resource", type=click.Choice(RESOURCES))
@click.argument("name")
@click.argument("settings", metavar="[KEY=VALUE]...", nargs=-1, callback=pairs)
@click.option(
    "--delete", "deleted", metavar="KEY", multiple=True, help="Back to the default; may be repeated."
)
@client_options
def set_(
    resource: str, name: str, settings: list[tuple[str, str]], deleted: tuple[str, ...], client: Client
) -> None:
    """Change settings of a topic or group (by name) or a broker (by node id).

    The broker `all` stands for all brokers; what one of them has of its own wins.
    """
    if not settings and not deleted:
        raise click.UsageError("nothing to set: give KEY=VALUE, or --delete KEY")
    if (resource, name) == ("broker", ALL):
        _alter_default(client, settings, deleted)
        click.echo("configured all brokers")
        return
    alter_configs(client.admin(), resource, name, settings, deleted)
    click.echo(f"configured {resource} {name}")


def _read_default(client: Client) -> list[dict[str, Any]]:
    from forebay.operations.cluster.broker_defaults import read_defaults
    from forebay.operations.wire import WireConnection

    with WireConnection.open(client) as connection:
        found = read_defaults(connection)
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "source": source_name(entry.config_source),
            "read_only": entry.read_only,
        }
        for entry in sorted(found, key=lambda entry: entry.name)
    ]


def _alter_default(client: Client, settings: Sequence[tuple[str, str]], deleted: Sequence[str]) -> None:
    from forebay.core.cluster.config_changes import AlterOp
    from forebay.operations.cluster.broker_defaults import alter_defaults
    from forebay.operations.wire import WireConnection
    from forebay.wire.messages.incremental_alter_configs import AlterableConfig

    changes = [
        AlterableConfig(name=key, config_operation=AlterOp.SET, value=value) for key, value in settings
    ]
    changes += [AlterableConfig(name=key, config_operation=AlterOp.DELETE, value=None) for key in deleted]
    with WireConnection.open(client) as connection:
        alter_defaults(connection, changes)


def _only(entries: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    import difflib

    for entry in entries:
        if entry["name"] == key:
            return entry
    near = difflib.get_close_matches(key, [entry["name"] for entry in entries], n=1)
    hint = f"did you mean {near[0]}?" if near else "`forebay config get` without a key lists them"
    raise CommandError(f"there is no setting {key}: {hint}")


def _source(entry: dict[str, Any]) -> str:
    source: str = entry["source"].lower().removesuffix("_config").replace("_", " ")
    return f"{source}, read-only" if entry["read_only"] else source
