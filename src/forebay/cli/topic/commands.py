"""`forebay topic create|list|describe|alter|delete|restore`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from forebay.cli import deletion
from forebay.cli.client import (
    REQUEST_SECONDS,
    Client,
    CommandError,
    client_options,
    no_topic,
    pairs_option,
    settle,
)
from forebay.cli.durations import Duration
from forebay.cli.output import json_option, print_json, print_table
from forebay.cli.topic.restoring import restore
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.operations.settings import alter_configs
from forebay.operations.topics.partition_counts import fold
from forebay.operations.topics.topic_admin import (
    add_partitions,
    describe_topics,
    note_on,
    shown_by,
    stopping_note,
)

config_option = pairs_option(
    "--config",
    "configs",
    metavar="KEY=VALUE",
    help="A topic setting, such as retention.ms=60000; may be repeated.",
)


@click.group()
def topic() -> None:
    """Create, list, describe, alter and delete topics."""


@topic.command()
@click.argument("name")
@click.option(
    "--partitions",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many. [default: the broker's num.partitions]",
)
@click.option(
    "--replication-factor",
    metavar="N",
    type=click.IntRange(min=1),
    help="Copies of each partition. [default: the broker's]",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="Do nothing when the topic is there already.")
@client_options
def create(
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: list[tuple[str, str]],
    if_not_exists: bool,
    client: Client,
) -> None:
    """Create a topic."""
    from confluent_kafka.admin import NewTopic

    admin = client.admin()
    if if_not_exists and name in client.metadata(admin).topics:
        click.echo(f"topic {name} is there already")
        return
    new = NewTopic(
        name,
        num_partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        config=dict(configs),
    )
    settle(admin.create_topics([new], request_timeout=REQUEST_SECONDS)[name])
    click.echo(f"created topic {name}")
    if (note := note_on(admin, name)) is not None:
        click.echo(note, err=True)


@topic.command(name="list")
@click.option("--internal", is_flag=True, help="Also the topics that the brokers keep for themselves.")
@json_option
@client_options
def list_(internal: bool, as_json: bool, client: Client) -> None:
    """List the topics."""
    topics = client.metadata(client.admin()).topics
    rows = [
        {
            "topic": name,
            "partitions": len(found.partitions),
            "replication_factor": max((len(part.replicas) for part in found.partitions.values()), default=0),
        }
        for name, found in sorted(topics.items())
        if internal or name not in INTERNAL_TOPICS
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("TOPIC", "PARTITIONS", "REPLICATION"), [list(row.values()) for row in rows])
    else:
        click.echo("no topics yet: `forebay topic create NAME` makes one", err=True)


@topic.command()
@click.argument("name", required=False)
@json_option
@client_options
def describe(name: str | None, as_json: bool, client: Client) -> None:
    """Show partitions, offsets and settings of one topic, or of all."""
    admin = client.admin()
    known = client.metadata(admin).topics
    if name is not None and name not in known:
        raise no_topic(name)
    names = [name] if name is not None else sorted(topic for topic in known if topic not in INTERNAL_TOPICS)
    described = describe_topics(client, admin, names)
    if as_json:
        print_json(described[0] if name is not None else described)
        return
    for topic in described:
        _print_description(topic)


@topic.command()
@click.argument("name")
@click.option(
    "--partitions", metavar="N", type=click.IntRange(min=1), help="The new count: more, or fewer by folding."
)
@click.option(
    "--drop-after",
    "drop_after_ms",
    type=Duration(),
    help="With fewer: after 12h, say, closed partitions go with what they hold. [default: when empty]",
)
@click.option("--allow-key-moves", is_flag=True, help="With fewer: N need not divide the old count.")
@config_option
@click.option(
    "--delete-config", "deleted", metavar="KEY", multiple=True, help="Back to the default; may be repeated."
)
@client_options
def alter(
    name: str,
    partitions: int | None,
    drop_after_ms: int | None,
    allow_key_moves: bool,
    configs: list[tuple[str, str]],
    deleted: tuple[str, ...],
    client: Client,
) -> None:
    """Change a topic's number of partitions or its settings."""
    if partitions is None and not configs and not deleted:
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    if partitions is None and (drop_after_ms is not None or allow_key_moves):
        raise click.UsageError("--drop-after and --allow-key-moves belong to --partitions")
    admin = client.admin()
    known = client.metadata(admin).topics
    if name not in known:
        raise no_topic(name)
    if configs or deleted:
        alter_configs(admin, "topic", name, configs, deleted)
    if partitions is not None and partitions < len(known[name].partitions):
        fold(client, name, partitions, drop_after_ms=drop_after_ms, allow_key_moves=allow_key_moves)
    elif partitions is not None:
        add_partitions(admin, name, partitions)
    click.echo(f"altered topic {name}")


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def delete(names: tuple[str, ...], yes: bool, client: Client) -> None:
    """Delete topics with all their messages."""
    if not yes:
        deletion.confirm(names, "every message in it")
    # Kept until every future is settled: a client that is collected early takes its answers with it.
    admin = client.admin()
    try:
        deletion.settle_each("topic", admin.delete_topics(list(names), request_timeout=REQUEST_SECONDS))
    except CommandError as error:
        raise CommandError("\n".join([str(error), *shown_by(client, names)])) from None


topic.add_command(restore)


def _print_description(topic: Mapping[str, Any]) -> None:
    settings = ", ".join(f"{key}={value}" for key, value in topic["configs"].items()) or "all default"
    click.echo(f"topic {topic['topic']}  id {topic['topic_id']}  settings: {settings}")
    replicas = max((len(part["replicas"]) for part in topic["partitions"]), default=0)
    if replicas > 1:
        click.echo(f"acks=all needs {topic['min_insync_replicas']} of {replicas} replicas in sync")
    if (note := stopping_note(replicas, topic["min_insync_replicas"])) is not None:
        click.echo(note, err=True)
    if topic["closed"] is not None:
        click.echo(topic["closed"]["note"])
        for reason in topic["closed"]["waits_for"]:
            click.echo(f"waits: {reason}")
    for part in topic["partitions"] if topic["tiered"] else ():
        if part["remote_problem"]:
            click.echo(
                f"partition {part['partition']}: the object store fails: {part['remote_problem']}", err=True
            )
    rows = [
        (
            part["partition"],
            part["leader"],
            ",".join(map(str, part["replicas"])),
            ",".join(map(str, part["isr"])),
            part["start_offset"],
            part["end_offset"],
            part["offsets"],
            *((part["local_start_offset"], part["copied_to"]) if topic["tiered"] else ()),
            *((part["remote_bytes"], part["waiting_bytes"]) if topic["tiered"] else ()),
            *(() if topic["closed"] is None else (part["folded_into"],)),
        )
        for part in topic["partitions"]
    ]
    headers: tuple[str, ...] = ("PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "MESSAGES")
    if topic["tiered"]:
        headers = (*headers, "LOCAL START", "COPIED TO", "REMOTE BYTES", "NOT COPIED")
    print_table((*headers, *(() if topic["closed"] is None else ("FOLDED INTO",))), rows)
    click.echo()
