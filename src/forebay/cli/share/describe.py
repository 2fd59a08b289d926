"""`forebay share describe`: members, progress, deliveries under way, and settings of a share group.

The broker counts the lag in messages: unfinished records from the start offset on. The lag in seconds is the
age of the record at the start offset. The leaders of the partitions know the deliveries under way, as long as
the partitions are in use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option, lag_text, print_json, print_table, seconds_text, total_lag_seconds
from forebay.operations.log_offsets import Place
from forebay.operations.message_ages import message_ages
from forebay.operations.settings import read_configs
from forebay.operations.share_admin import Progress, ShareAdmin
from forebay.wire.messages.describe_share_windows import ShareWindow
from forebay.wire.messages.share_group_describe import DescribedGroup, Member

SETTINGS = (
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "forebay.share.record.limit.enable",
    "forebay.share.retry.backoff.ms",
    "forebay.share.retry.backoff.max.ms",
    "share.isolation.level",
    "share.auto.offset.reset",
    "errors.deadletterqueue.topic.name",
)
"""The settings that explain why a message comes now, again, or not at all. A broker may know fewer."""


@click.command()
@click.argument("name")
@json_option
@client_options
def describe(name: str, as_json: bool, client: Client) -> None:
    """Show the members of a share group, how far it is behind, and its settings."""
    with ShareAdmin(client) as admin:
        found = admin.describe(name)
        progress = admin.progress(name)
        windows = admin.windows(name)
    behind = {
        place: each.start_offset
        for place, each in progress.items()
        if each.lag and each.start_offset is not None
    }
    described = _as_dict(found, progress, message_ages(client, behind), _settings(client, name))
    for each in described["partitions"]:
        each["window"] = _window(windows.get((each["topic"], each["partition"])))
    if as_json:
        print_json(described)
    else:
        _print_description(described)


def _settings(client: Client, name: str) -> dict[str, str | None]:
    known = {entry["name"]: entry["value"] for entry in read_configs(client.admin(), "group", name)}
    return {key: known[key] for key in SETTINGS if key in known}


def _as_dict(
    found: DescribedGroup,
    progress: Mapping[Place, Progress],
    ages: Mapping[Place, float],
    settings: Mapping[str, str | None],
) -> dict[str, Any]:
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "start_offset": each.start_offset,
            "lag": each.lag,
            "lag_seconds": 0.0 if each.lag == 0 else ages.get((topic, partition)),
            "members": sum((topic, partition) in _assigned(member) for member in found.members),
            "problem": each.problem,
        }
        for (topic, partition), each in progress.items()
    ]
    return {
        "group": found.group_id,
        "state": found.group_state,
        "assignor": found.assignor_name or None,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.client_host,
                "partitions": [f"{topic}-{partition}" for topic, partition in sorted(_assigned(member))],
            }
            for member in found.members
        ],
        "partitions": partitions,
        "lag": sum(each.lag or 0 for each in progress.values()),
        "lag_seconds": total_lag_seconds(partitions),
        "settings": settings,
    }


def _window(window: ShareWindow | None) -> dict[str, Any] | None:
    """The window of a partition that is in use."""
    if window is None:
        return None
    return {
        "offsets": window.end_offset - window.start_offset + 1,
        "offsets_max": window.window_max,
        "held": window.acquired,
        "waiting_for_retry": window.waiting,
        "dead_letters_waiting": window.dead_letters,
        "dead_letter_problem": window.dead_letter_problem or None,
        "holders": [
            {"member": each.member_id, "records": each.records, "oldest_lock_ms": each.oldest_lock_ms}
            for each in window.holders
        ],
    }


def _assigned(member: Member) -> set[Place]:
    return {
        (topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    }


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
