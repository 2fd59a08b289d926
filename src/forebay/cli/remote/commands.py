"""`forebay remote list|check`: look into the object store of tiered storage. They need no broker."""

from __future__ import annotations

import click

from forebay.cli.client import CommandError
from forebay.cli.durations import Duration
from forebay.cli.output import json_option, print_json, print_table

_HOUR_MS = 3_600_000


@click.group()
def remote() -> None:
    """Look at, check and clean the object store of tiered storage."""


@remote.command(name="list")
@click.argument("url")
@json_option
def list_(url: str, as_json: bool) -> None:
    """List the topics in the store at URL, a directory or s3://bucket/prefix."""
    from forebay.operations.remote_store import open_remote
    from forebay.tiers.reading import list_topics, partition_count, read_manifest

    store = open_remote(url)
    rows = []
    for topic in sorted(list_topics(store)):
        count = partition_count(store, topic)
        manifests = [read_manifest(store, topic.topic_id, index) for index in range(count)]
        rows.append(
            {
                "topic": topic.name,
                "topic_id": topic.topic_id.hex(),
                "partitions": count,
                "segments": sum(len(each.segments) for each in manifests if each is not None),
                "bytes": sum(each.data_bytes for each in manifests if each is not None),
            }
        )
    if as_json:
        print_json(rows)
    elif rows:
        print_table(("TOPIC", "ID", "PARTITIONS", "SEGMENTS", "BYTES"), [list(row.values()) for row in rows])
    else:
        click.echo(f"no topics in {url}", err=True)


@remote.command()
@click.argument("url")
@click.option("--deep", is_flag=True, help="Read every object, and compare it with its hash.")
@click.option("--delete-orphans", is_flag=True, help="Delete objects that no manifest knows.")
@click.option(
    "--min-age",
    "age_min_ms",
    type=Duration(),
    default=_HOUR_MS,
    help="Younger objects are no orphans: they may be under way. [default: 1h]",
)
@json_option
def check(url: str, deep: bool, delete_orphans: bool, age_min_ms: int, as_json: bool) -> None:
    """Compare the manifests in the store at URL with the objects; find orphans and damage.

    Also checks that the store keeps the conditions of writes. Exit code 1 if something is missing or damaged.
    """
    from forebay.operations.remote_store import check_conditions, check_store, open_remote

    store = open_remote(url)
    check_conditions(store)
    report = check_store(store, age_min_ms=age_min_ms, deep=deep)
    if delete_orphans:
        for orphan in report.orphans:
            store.delete(orphan.key)
    if as_json:
        print_json({**report._asdict(), "orphans": [orphan.key for orphan in report.orphans]})
    else:
        click.echo(
            f"{report.topics} topics, {report.partitions} partitions, {report.segments} segments, "
            f"{report.bytes} bytes"
        )
        for orphan in report.orphans:
            done = "deleted" if delete_orphans else "orphan"
            click.echo(f"{done}: {orphan.key} ({orphan.size} bytes)")
        if report.young:
            click.echo(f"{report.young} younger objects that no manifest knows yet")
        for problem in report.problems:
            click.echo(f"problem: {problem}")
    if report.problems:
        raise CommandError(f"{len(report.problems)} objects are missing or damaged")
