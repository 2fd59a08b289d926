"""The topics that dead letters go to, and the share groups that send them there."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from forebay.core.cluster.resources import ResourceType
from forebay.operations.dead_letters.letters import Letter
from forebay.operations.settings import read_configs
from forebay.operations.wire import WireConnection
from forebay.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_TAKES_LETTERS = "errors.deadletterqueue.group.enable"
_GOES_TO = "errors.deadletterqueue.topic.name"


def dead_letter_topics(
    connection: WireConnection, topics: Collection[str], groups: Collection[str]
) -> dict[str, list[str]]:
    """Of these topics those that take dead letters, with those of these share groups that send them there."""
    found: dict[str, list[str]] = {
        name: []
        for name, value in _read(connection, ResourceType.TOPIC, topics, _TAKES_LETTERS)
        if value == "true"
    }
    for group, topic in _read(connection, ResourceType.GROUP, groups, _GOES_TO):
        if topic:
            found.setdefault(topic, []).append(group)
    return found


def _read(
    connection: WireConnection, kind: ResourceType, names: Collection[str], key: str
) -> list[tuple[str, str | None]]:
    """The value of a setting for each name. Those that are gone, or hidden from this user, are left out."""
    if not names:
        return []
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
            for name in sorted(names)
        ]
    )
    return [
        (found.resource_name, config.value)
        for found in connection.ask(request, DescribeConfigsResponse).results
        if not found.error_code
        for config in found.configs
    ]


def uncommitted_readers(admin: AdminClient, moved: Iterable[Letter]) -> list[str]:
    """Notes about groups that may see the messages of a redrive that is killed."""
    lines = []
    for name in sorted({each.group for each in moved if each.group is not None}):
        settings = {entry["name"]: entry["value"] for entry in read_configs(admin, "group", name)}
        if settings.get("share.isolation.level") == "read_uncommitted":
            lines.append(
                f"share group {name} reads uncommitted: if a redrive is killed, the group may be given the "
                f"messages of the unfinished transaction too; `forebay config set group {name} "
                f"share.isolation.level=read_committed` prevents that"
            )
    return lines
