"""`forebay remote list|check|rebuild`: the object store of tiered storage. They need no broker."""

from __future__ import annotations

import click

from forebay.cli.client import CommandError
from forebay.cli.durations import Duration
from forebay.cli.output import json_option, print_json, print_table

_HOUR_MS = 3_600_000


@click.group()
def remote() -> None:
    """Look at, check, clean and repair the object store of tiered storage."""


@remote.command(name="list")
@click.argument("url")
@json_option
def list_(url: str, as_json: bool) -> None:
    """List the topics in the store at URL, a directory or s3://bucket/prefix."""
    from forebay.operations.remote_store import open_remote, read_manifests
    from forebay.tiers.reading import list_topics

    store = open_remote(url)
    rows = []
    for topic in sorted(list_topics(store)):
        found = read_manifests(store, topic)
        rows.append(
            {
                "topic": topic.name,
                "topic_id": topic.topic_id.hex(),
                "partitions": found.partitions,
                "segments": sum(len(each.segments) for each in found.manifests),
                "bytes": sum(each.data_bytes for each in found.manifests),
            }
        )
        for problem in found.problems:
            click.echo(f"problem: {problem}", err=True)
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
        for kept in report.kept:
            click.echo(f"kept: {kept}")
        for problem in report.problems:
            click.echo(f"problem: {problem}")
    if report.problems:
        raise CommandError(f"{len(report.problems)} objects are missing or damaged")


@remote.command()
@click.argument("url")
@click.argument("topics", metavar="[TOPIC...]", nargs=-1)
@click.option("--plan", "only_plan", is_flag=True, help="Only show what would be written.")
@click.option("--force", is_flag=True, help="Also manifests that can be read: one that is too old.")
@click.option(
    "--before-gap",
    is_flag=True,
    help="List what lies before a damaged or missing segment; leaders copy the rest again, if they have it.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="List what lies behind it, give up the rest, and have brokers pass over what is missing.",
)
@json_option
def rebuild(
    url: str,
    topics: tuple[str, ...],
    only_plan: bool,
    force: bool,
    before_gap: bool,
    accept_loss: bool,
    as_json: bool,
) -> None:
    """Make manifests anew that are missing in the store at URL, or cannot be read.

    Each is made from the segments of its partition, which are read whole. Manifests that can be read are left
    alone. Messages that were deleted may be there again, until retention deletes them. TOPIC is a name or an
    id; without one all topics are looked at.
    """
    from forebay.operations.manifest_rebuild import Rebuilt, Wishes, rebuild_manifests
    from forebay.operations.remote_store import open_remote
    from forebay.tiers.object_store import ObjectStoreError

    if (force or before_gap or accept_loss) and not topics:
        raise click.UsageError("--force, --before-gap and --accept-loss are for topics that you name")
    if before_gap and accept_loss:
        raise click.UsageError("--before-gap keeps what --accept-loss gives up: say one of them")
    wishes = Wishes(frozenset(topics), not only_plan, force, before_gap, accept_loss)
    found: list[Rebuilt] = []
    try:
        found.extend(rebuild_manifests(open_remote(url), wishes))
    except ObjectStoreError as error:
        raise CommandError(str(error)) from error
    if as_json:
        print_json([each._asdict() for each in found])
    elif found:
        columns = ("topic", "partition", "start_offset", "next_offset", "segments", "bytes", "written")
        headers = ("TOPIC", "PARTITION", "START", "END", "SEGMENTS", "BYTES", "WRITTEN")
        print_table(headers, [[getattr(each, column) for column in columns] for each in found])
    else:
        click.echo("no manifest is missing", err=True)
    for each in found:
        for key in each.left_out:
            click.echo(f"left out: {key}", err=True)
        for problem in each.problems:
            click.echo(f"problem: {problem}", err=True)
    if any(each.failed for each in found):
        raise CommandError(
            "not all manifests could be made. Where segments are damaged or gone, bring them back; or name "
            "the topics with --before-gap, if the disks of the leaders still have these messages, or else "
            "with --accept-loss, by which they, and all that lie before them in their partitions, are lost"
        )
