"""The description of a share group: members, progress, deliveries under way, and settings.

The broker counts the lag in messages: unfinished records from the start offset on. The lag in seconds is the
age of the record at the start offset. The leaders of the partitions know the deliveries under way, as long as
the partitions are in use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forebay.operations.client import Client
from forebay.operations.groups.group_lag import total_lag_seconds
from forebay.operations.groups.share_admin import Progress, ShareAdmin
from forebay.operations.messages.log_offsets import Place
from forebay.operations.settings import read_configs
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


_STATES = {0: "waits", 1: "held", 3: "dead letter"}
"""Of records that are not finished."""

Ages = Callable[[Mapping[Place, int]], Mapping[Place, float]]
"""The ages of the records at these offsets, in seconds."""


def describe_share_group(client: Client, name: str, read_ages: Ages) -> dict[str, Any]:
    """Raises CommandError if there is no such share group."""
    with ShareAdmin(client) as admin:
        found = admin.describe(name)
        progress = admin.progress(name)
        windows = admin.windows(name)
    behind = {
        place: each.start_offset
        for place, each in progress.items()
        if each.lag and each.start_offset is not None
    }
    described = _as_dict(found, progress, read_ages(behind), _settings(client, name))
    for each in described["partitions"]:
        each["window"] = _window(windows.get((each["topic"], each["partition"])))
    return described


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
        "records": [
            {
                "first_offset": each.first_offset,
                "last_offset": each.last_offset,
                "state": _STATES.get(each.state, str(each.state)),
                "deliveries": each.deliveries,
                "member": each.member_id or None,
                "left_ms": None if each.left_ms < 0 else each.left_ms,
            }
            for each in window.spans
        ],
    }


def _assigned(member: Member) -> set[Place]:
    return {
        (topic.topic_name, partition)
        for topic in member.assignment.topic_partitions
        for partition in topic.partitions
    }
