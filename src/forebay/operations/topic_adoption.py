"""Restoring topics from the object store with their offsets: the cluster goes on with them. Blocking.

The brokers must use the same object store. A topic keeps its id, its objects and its offsets: its logs begin
where the object store ends. Whatever was not copied is lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from forebay.operations.client import REQUEST_SECONDS, Client, CommandError, settle
from forebay.operations.remote_store import find_topic, read_manifests
from forebay.tiers.object_store import ObjectStore, ObjectStoreError
from forebay.tiers.reading import RemoteTopic, list_topics

_URL = "forebay.remote.url"
_RESTORE = "forebay.remote.restore"
_RETENTION_MS = "retention.ms"
_THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_KEEPS_ALL = {_RETENTION_MS: "-1", "retention.bytes": "-1"}


class PlannedRestore(NamedTuple):
    topic: RemoteTopic
    name: str
    """Of the restored topic."""
    partitions: int
    offsets: int
    """How many offsets can be read again, of all partitions."""
    bytes: int
    last_copied_ms: int
    """When the last segment was copied; 0 if there is none. What came later is lost."""
    expired_bytes: int
    """Of messages that retention deletes as soon as the topic is restored."""
    problem: str
    """Why it cannot be restored; empty if it can."""


def brokers_store(client: Client) -> str:
    """The object store that the brokers use. Raises CommandError if they use none."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    admin = client.admin()
    node = min(client.metadata(admin).brokers)
    resource = ConfigResource(ResourceType.BROKER, str(node))
    found: dict[str, Any] = settle(
        admin.describe_configs([resource], request_timeout=REQUEST_SECONDS)[resource]
    )
    url = found[_URL].value if _URL in found else None
    if not url:
        raise CommandError(
            "the brokers have no object store: start them with --remote URL (forebay.remote.url) to restore "
            "topics with their offsets, or produce the messages again with --new-offsets"
        )
    return str(url)


def plan_restores(
    client: Client, store: ObjectStore, names: Sequence[str], new_name: str | None, *, keep_all: bool
) -> list[PlannedRestore]:
    """The topics that would be restored; without names, all in the store. Raises CommandError."""
    known = client.metadata(client.admin()).topics
    try:
        topics = [find_topic(store, name) for name in names] or sorted(list_topics(store))
        return [_plan(store, topic, new_name or topic.name, topics, known, keep_all) for topic in topics]
    except ObjectStoreError as error:
        raise CommandError(str(error)) from error


def _plan(
    store: ObjectStore,
    topic: RemoteTopic,
    name: str,
    topics: Sequence[RemoteTopic],
    known: Any,
    keep_all: bool,
) -> PlannedRestore:
    count, manifests, unreadable = read_manifests(store, topic)
    segments = [segment for manifest in manifests for segment in manifest.segments]
    retention_ms = -1 if keep_all else int(topic.settings.get(_RETENTION_MS, -1))
    oldest_ms = int(time.time() * 1000) - retention_ms
    expired = [each for each in segments if retention_ms >= 0 and 0 <= each.max_timestamp < oldest_ms]
    problem = "; ".join(unreadable)
    if name in known:
        problem = f"there is a topic {name} already: choose another name with --as"
    elif sum(other.name == topic.name for other in topics) > 1:
        problem = f"there are several topics {name}: restore one by its id, {topic.topic_id.hex()}"
    return PlannedRestore(
        topic=topic,
        name=name,
        partitions=count,
        offsets=sum(each.next_offset - each.first_offset for each in manifests),
        bytes=sum(segment.data_bytes for segment in segments),
        last_copied_ms=max((segment.copied_ms for segment in segments), default=0),
        expired_bytes=sum(segment.data_bytes for segment in expired),
        problem=problem,
    )


def adopt(client: Client, planned: PlannedRestore, *, keep_all: bool) -> None:
    """Have the cluster go on with a topic. Raises CommandError."""
    from confluent_kafka.admin import NewTopic

    admin = client.admin()
    settings = {name: text for name, text in planned.topic.settings.items() if name not in _THROTTLES}
    settings |= _KEEPS_ALL if keep_all else {}
    new = NewTopic(
        planned.name,
        num_partitions=planned.partitions,
        replication_factor=-1,
        config={**settings, _RESTORE: planned.topic.topic_id.hex()},
    )
    settle(admin.create_topics([new], request_timeout=REQUEST_SECONDS)[planned.name])
