"""`forebay topic restore`: topics come back from the object store of tiered storage alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.output import json_option, print_json, print_table

if TYPE_CHECKING:
    from forebay.operations.topic_adoption import PlannedRestore


@click.command()
@click.argument("names", metavar="[NAME...]", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every topic in the store.")
@click.option(
    "--remote", "url", metavar="DIR-OR-URL", help="The object store. [default: the one that the brokers use]"
)
@click.option("--as", "new_name", metavar="NEW", help="The name of the new topic. [default: the same]")
@click.option("--keep-all", is_flag=True, help="Turn retention off, until you set it.")
@click.option(
    "--new-offsets",
    is_flag=True,
    help="Produce the messages again into a new topic, with new offsets. The brokers need no object store.",
)
@click.option("--tiered", is_flag=True, help="With --new-offsets: the new topic is tiered, too.")
@click.option("--plan", "only_plan", is_flag=True, help="Only show what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@client_options
def restore(
    names: tuple[str, ...],
    every: bool,
    url: str | None,
    new_name: str | None,
    keep_all: bool,
    new_offsets: bool,
    tiered: bool,
    only_plan: bool,
    yes: bool,
    as_json: bool,
    client: Client,
) -> None:
    """Bring topics back from the object store of tiered storage alone.

    NAME is a topic, or its id, as `forebay remote list` shows it. The cluster goes on with a topic as it is
    in the store: with its offsets, its settings and its id. What was not copied there is lost. No other
    cluster may use these topics any more.
    """
    if bool(names) == every:
        raise click.UsageError("name topics, or give --all")
    if new_name is not None and len(names) != 1:
        raise click.UsageError("--as is for one topic")
    if new_offsets:
        if every or only_plan or len(names) != 1 or url is None:
            raise click.UsageError("--new-offsets is for one topic, and needs --remote")
        _produce_again(client, names[0], url, new_name, tiered=tiered)
        return
    _adopt(
        client,
        url,
        names,
        new_name,
        keep_all=keep_all,
        only_plan=only_plan,
        yes=yes,
        as_json=as_json,
    )


def _adopt(
    client: Client,
    url: str | None,
    names: Sequence[str],
    new_name: str | None,
    *,
    keep_all: bool,
    only_plan: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from forebay.operations.remote_store import open_remote
    from forebay.operations.topic_adoption import adopt, brokers_store, plan_restores

    brokers_url = brokers_store(client)
    store = open_remote(url or brokers_url)
    plan = plan_restores(client, store, names, new_name, keep_all=keep_all)
    if not as_json or only_plan:
        _show(plan, as_json=as_json)
    if not plan:
        raise CommandError(f"there is no topic in {store.url}")
    wanted = [each for each in plan if not each.problem]
    if only_plan:
        return
    if names and len(wanted) < len(plan):
        raise CommandError("\n".join(each.problem for each in plan if each.problem))
    if wanted and not yes:
        _ask(wanted)
    failures = []
    for each in wanted:
        try:
            adopt(client, each, keep_all=keep_all)
        except CommandError as error:
            failures.append(f"{each.name}: {error}")
        else:
            if not as_json:
                click.echo(f"restored topic {each.name}")
    if as_json:
        print_json([_row(each) for each in wanted])
    failures += [f"{each.name}: {each.problem}" for each in plan if each.problem]
    if failures:
        raise CommandError("\n".join(failures))


def _ask(wanted: Sequence[PlannedRestore]) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("restoring needs --yes when nobody can be asked")
    click.confirm(
        f"Restore {len(wanted)} topics? No other cluster may use them any more: its leaders could not copy "
        "to the store, and deleting a topic here deletes its objects.",
        abort=True,
    )


def _show(plan: Sequence[PlannedRestore], *, as_json: bool) -> None:
    if as_json:
        print_json([_row(each) for each in plan])
        return
    headers = ("TOPIC", "ID", "PARTITIONS", "OFFSETS", "BYTES", "EXPIRED BYTES", "LAST COPIED", "PROBLEM")
    print_table(headers, [list(_row(each).values()) for each in plan])


def _row(planned: PlannedRestore) -> dict[str, object]:
    from forebay.operations.local_time import local_time

    return {
        "topic": planned.name,
        "topic_id": planned.topic.topic_id.hex(),
        "partitions": planned.partitions,
        "offsets": planned.offsets,
        "bytes": planned.bytes,
        "expired_bytes": planned.expired_bytes,
        "last_copied": local_time(planned.last_copied_ms) if planned.last_copied_ms else "",
        "problem": planned.problem,
    }


def _produce_again(client: Client, name: str, url: str, new_name: str | None, *, tiered: bool) -> None:
    from forebay.operations.remote_store import find_topic, open_remote
    from forebay.operations.topic_restore import create_restored, restore_messages

    store = open_remote(url)
    found = find_topic(store, name)
    target = new_name or found.name
    count = create_restored(client, store, found, target, tiered=tiered)
    click.echo(f"created topic {target} with {count} partitions; retention is off until you set it")
    restored = restore_messages(client, store, found, target, range(count))
    click.echo(f"restored {restored} messages")
