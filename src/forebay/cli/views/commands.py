"""`forebay view create|list|describe|delete`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from forebay.cli import deletion
from forebay.cli.client import REQUEST_SECONDS, Client, CommandError, client_options, settle
from forebay.cli.log_offsets import ends_of
from forebay.cli.output import json_option, print_json, print_table
from forebay.cli.views.described import View, read_views
from forebay.cli.wire import WireConnection
from forebay.core.views.catalog import KEEP_TOMBSTONES, SELECT, SOURCE, WHERE


@click.group()
def view() -> None:
    """Create, list, describe and delete views: topics that show a part of another topic."""


@view.command()
@click.argument("name")
@click.option("--from", "source", metavar="TOPIC", required=True, help="The topic that the view shows.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Which messages, such as \"headers['region'] = 'eu'\". [default: all]",
)
@click.option(
    "--select",
    metavar="COLUMNS",
    help='What their values are made of, such as "value.id, value.amount". [default: the value as it is]',
)
@click.option(
    "--keep-tombstones", is_flag=True, help="Show messages without a value even if the condition needs one."
)
@client_options
def create(
    name: str, source: str, where: str | None, select: str | None, keep_tombstones: bool, client: Client
) -> None:
    """Create a view of a topic. Consumers read it like a topic."""
    from confluent_kafka.admin import NewTopic

    settings = {SOURCE: source, WHERE: where, SELECT: select}
    query = {key: value for key, value in settings.items() if value is not None}
    if keep_tombstones:
        query[KEEP_TOMBSTONES] = "true"
    admin = client.admin()
    new = NewTopic(name, num_partitions=-1, replication_factor=-1, config=query)
    settle(admin.create_topics([new], request_timeout=REQUEST_SECONDS)[name])
    click.echo(f"created view {name} of topic {source}")


@view.command(name="list")
@json_option
@client_options
def list_(as_json: bool, client: Client) -> None:
    """List the views."""
    with WireConnection.open(client) as connection:
        views = [asdict(each) for _, each in sorted(read_views(connection).items())]
    if as_json:
        print_json(views)
    elif views:
        rows = [(each["name"], each["source"], each["where"], each["select"]) for each in views]
        print_table(("VIEW", "OF", "WHERE", "SELECT"), rows)
    else:
        click.echo("no views yet: `forebay view create NAME --from TOPIC` makes one", err=True)


@view.command()
@click.argument("name")
@json_option
@client_options
def describe(name: str, as_json: bool, client: Client) -> None:
    """Show the query of a view, and the offsets of its partitions, which are those of its source."""
    found = _existing(client, name)
    admin = client.admin()
    places = [(name, index) for index in client.partitions(admin, name)]
    starts, ends = ends_of(admin, places)
    partitions = [
        {"partition": place[1], "start_offset": starts.found.get(place), "end_offset": ends.found.get(place)}
        for place in places
    ]
    if as_json:
        print_json({**asdict(found), "partitions": partitions})
        return
    for key, value in _lines(found).items():
        click.echo(f"{key:>8}  {value}")
    print_table(("PARTITION", "START", "END"), [list(each.values()) for each in partitions])


@view.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def delete(name: str, yes: bool, client: Client) -> None:
    """Delete a view. Its source keeps all messages."""
    _existing(client, name)
    if not yes:
        deletion.confirm([name], "what groups have committed for it")
    admin = client.admin()
    deletion.settle_each("view", admin.delete_topics([name], request_timeout=REQUEST_SECONDS))


def _existing(client: Client, name: str) -> View:
    with WireConnection.open(client) as connection:
        found = read_views(connection, [name]).get(name)
    if found is None:
        raise CommandError(f"there is no view {name}: `forebay view list` shows those that there are")
    return found


def _lines(found: View) -> Mapping[str, Any]:
    return {
        "view": found.name,
        "of": found.source,
        "where": found.where or "(every message)",
        "select": found.select or "(the value as it is)",
        **({"keeps": "tombstones"} if found.keep_tombstones else {}),
    }
