"""`forebay view create|list|describe|delete`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import click

from forebay.cli import deletion
from forebay.cli.client import REQUEST_SECONDS, Client, client_options, pairs_option
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.messages.log_offsets import ends_of
from forebay.operations.topics.views import (
    View,
    create_view,
    existing_view,
    read_stops,
    read_views,
    view_lags,
)
from forebay.operations.wire import WireConnection

_KINDS = {False: "filter", True: "topic"}
"""By whether it is materialized."""


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
@click.option(
    "--materialize", is_flag=True, help="Store what it shows in a topic of its own, which brokers fill."
)
@click.option(
    "--replication-factor", type=click.IntRange(min=1), help="Replicas of that topic. [default: the broker's]"
)
@pairs_option(
    "--config", "configs", metavar="KEY=VALUE", help="A setting of that topic, such as retention.ms=-1."
)
@client_options
def create(
    name: str,
    source: str,
    where: str | None,
    select: str | None,
    keep_tombstones: bool,
    materialize: bool,
    replication_factor: int | None,
    configs: list[tuple[str, str]],
    client: Client,
) -> None:
    """Create a view of a topic. Consumers read it like a topic.

    With --materialize it is a topic: filled exactly once, read as fast as any, and kept when the source
    deletes its messages. The settings are for that topic.
    """
    if (replication_factor or configs) and not materialize:
        raise click.UsageError("--replication-factor and --config are for views with --materialize")
    new = View(
        name=name,
        source=source,
        where=where,
        select=select,
        keep_tombstones=keep_tombstones,
        materialized=materialize,
    )
    create_view(client.admin(), new, replication_factor=replication_factor, configs=dict(configs))
    kind = "materialized view" if materialize else "view"
    click.echo(f"created {kind} {name} of topic {source}")


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
        rows = [
            (each["name"], each["source"], _KINDS[each["materialized"]], each["where"], each["select"])
            for each in views
        ]
        print_table(("VIEW", "OF", "KIND", "WHERE", "SELECT"), rows)
    else:
        click.echo("no views yet: `forebay view create NAME --from TOPIC` makes one", err=True)


@view.command()
@click.argument("name")
@json_option
@client_options
def describe(name: str, as_json: bool, client: Client) -> None:
    """Show the query of a view, and the offsets of its partitions, which are those of its source.

    Of a materialized one, also how far it is behind its source, and why it is not filled if it is not.
    """
    found = _existing(client, name)
    admin = client.admin()
    places = [(name, index) for index in client.partitions(admin, name)]
    starts, ends = ends_of(admin, places)
    partitions: list[dict[str, Any]] = [
        {"partition": place[1], "start_offset": starts.found.get(place), "end_offset": ends.found.get(place)}
        for place in places
    ]
    if found.materialized:
        lags = view_lags(admin, found.source, ends.found)
        stops = read_stops(client, admin, name)
        partitions = [
            {**each, "lag": lags.get(each["partition"]), "stopped": stops.get(each["partition"])}
            for each in partitions
        ]
    if as_json:
        print_json({**asdict(found), "partitions": partitions})
        return
    for key, value in _lines(found).items():
        click.echo(f"{key:>8}  {value}")
    columns = ("PARTITION", "START", "END", "LAG") if found.materialized else ("PARTITION", "START", "END")
    print_table(columns, [list(each.values())[: len(columns)] for each in partitions])
    for each in partitions:
        if each.get("stopped"):
            click.echo(f"partition {each['partition']} is not filled: {each['stopped']}")


@view.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def delete(name: str, yes: bool, client: Client) -> None:
    """Delete a view. Its source keeps all messages; a materialized view is deleted with its own."""
    found = _existing(client, name)
    if not yes:
        lost = "what groups have committed for it"
        deletion.confirm([name], f"its messages, and {lost}" if found.materialized else lost)
    admin = client.admin()
    deletion.settle_each("view", admin.delete_topics([name], request_timeout=REQUEST_SECONDS))


def _existing(client: Client, name: str) -> View:
    with WireConnection.open(client) as connection:
        return existing_view(connection, name)


def _lines(found: View) -> Mapping[str, Any]:
    return {
        "view": found.name,
        **({"kind": "materialized: a topic that brokers fill"} if found.materialized else {}),
        "of": found.source,
        "where": found.where or "(every message)",
        "select": found.select or "(the value as it is)",
        **({"keeps": "tombstones"} if found.keep_tombstones else {}),
    }
