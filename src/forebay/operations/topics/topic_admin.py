"""Topics: their description, and what their creator or destroyer should know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay.operations.client import REQUEST_SECONDS, Client, CommandError, join_address, settle
from forebay.operations.messages.log_offsets import Place, ends_of
from forebay.operations.settings import read_configs
from forebay.operations.topics.partition_counts import Closed, closed_partitions, closing_note

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicDescription


def shown_by(client: Client, names: Sequence[str]) -> list[str]:
    """Why topics with views cannot be deleted. The client library does not pass it on."""
    from forebay.operations.topics.views import read_views
    from forebay.operations.wire import WireConnection

    try:
        with WireConnection.open(client) as connection:
            views = read_views(connection).values()
    except CommandError:
        return []
    return [
        f"view {each.name} shows topic {each.source}: delete it first"
        for each in views
        if each.source in names
    ]


def note_on(admin: AdminClient, name: str) -> str | None:
    """A note for the creator of a topic."""
    from confluent_kafka import KafkaException, TopicCollection

    try:
        futures = admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_SECONDS)
        replicas = _replicas(futures[name].result(timeout=REQUEST_SECONDS * 2).partitions)
        return stopping_note(replicas, _min_insync(read_configs(admin, "topic", name)))
    except (KafkaException, CommandError, TimeoutError):
        return None  # the topic exists; another broker may not know it yet


def _replicas(partitions: Iterable[Any]) -> int:
    return max((len(part.replicas) for part in partitions), default=0)


def _min_insync(entries: Iterable[Mapping[str, Any]]) -> int:
    return next(int(entry["value"]) for entry in entries if entry["name"] == "min.insync.replicas")


def stopping_note(replicas: int, minimum: int) -> str | None:
    if not 1 < replicas <= minimum:
        return None
    both = "both" if replicas == 2 else f"all {replicas}"
    return (
        f"note: acks=all needs {both} replicas in sync (min.insync.replicas is {minimum}), and is refused "
        "while one of their brokers is away; more replicas avoid that, and min.insync.replicas=1 goes on "
        "with a single copy (docs/guarantees.md)"
    )


def add_partitions(admin: AdminClient, name: str, count: int) -> None:
    from confluent_kafka.admin import NewPartitions

    settle(admin.create_partitions([NewPartitions(name, count)], request_timeout=REQUEST_SECONDS)[name])


def describe_topics(client: Client, admin: AdminClient, names: Sequence[str]) -> list[dict[str, Any]]:
    """A few requests for any number of topics: partitions, offsets at both ends, settings.

    Topics whose number of partitions is changing take more.
    """
    from confluent_kafka import TopicCollection

    if not names:
        return []
    closed = closed_partitions(client, names)
    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=REQUEST_SECONDS)
    topics = [settle(futures[name]) for name in names]
    # A partition without an answer (offline, say) has no offset; the rest of the table still helps.
    starts, ends = ends_of(admin, [(topic.name, part.id) for topic in topics for part in topic.partitions])
    return [
        {
            "topic": topic.name,
            "topic_id": str(topic.topic_id),
            "internal": topic.is_internal,
            "configs": _overrides(settings),
            "min_insync_replicas": _min_insync(settings),
            "tiered": _is_tiered(settings),
            "closed": _closing(client, topic, closed.get(topic.name), settings),
            "partitions": _with_tiers(
                client,
                topic,
                settings,
                list(_partition_rows(topic, starts.found, ends.found, closed.get(topic.name))),
            ),
        }
        for topic in topics
        for settings in [read_configs(admin, "topic", topic.name)]
    ]


def _is_tiered(entries: Iterable[Mapping[str, Any]]) -> bool:
    return any(entry["name"] == "remote.storage.enable" and entry["value"] == "true" for entry in entries)


def _with_tiers(
    client: Client,
    topic: TopicDescription,
    entries: Sequence[Mapping[str, Any]],
    rows: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """The rows of a tiered topic also say which part of each partition is where.

    Offsets need the right Describe on the topic, bytes and problems Describe on the cluster.
    """
    if not _is_tiered(entries):
        return rows
    from forebay.operations.remote_logs import remote_logs
    from forebay.operations.tiered_offsets import tiered_offsets
    from forebay.operations.wire import BrokerConnections

    offsets = tiered_offsets(client, topic)
    connections = BrokerConnections(client)
    try:
        leaders = {
            join_address(part.leader.host, part.leader.port) for part in topic.partitions if part.leader
        }
        logs = remote_logs(connections, sorted(leaders), [topic.name])
    finally:
        connections.close()
    for row in rows:
        found, log = offsets.get(row["partition"]), logs.get((topic.name, row["partition"]))
        known = log if log is not None and log.is_known else None
        row["local_start_offset"] = None if found is None else found.local_start
        row["copied_to"] = None if found is None else found.copied_to
        row["remote_bytes"] = None if known is None else known.remote_bytes
        row["waiting_segments"] = None if known is None else known.waiting_segments
        row["waiting_bytes"] = None if known is None else known.waiting_bytes
        row["remote_problem"] = None if log is None else log.problem or None
    return rows


def _closing(
    client: Client, topic: TopicDescription, closed: Closed | None, entries: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The description of folded partitions, if the topic has some or is opening some again."""
    if closed is None:
        return None
    from forebay.operations.topics.partition_waits import (
        waits,
    )  # it takes the whole format of batches, for a few topics

    retention_ms = next(int(entry["value"]) for entry in entries if entry["name"] == "retention.ms")
    note = closing_note(closed, retention_ms)
    return {
        "since_ms": closed.since_ms,
        "drop_ms": closed.drop_ms,
        "gathering": list(closed.gathering),
        "draining": list(closed.draining),
        "note": note,
        "waits_for": waits(client, topic, closed, _min_insync(entries)),
    }


def _partition_rows(
    topic: TopicDescription,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    closed: Closed | None,
) -> Iterable[dict[str, Any]]:
    for part in topic.partitions:
        place = (topic.name, part.id)
        start, end = starts.get(place), ends.get(place)
        yield {
            "partition": part.id,
            "leader": None if part.leader is None else part.leader.id,
            "replicas": [node.id for node in part.replicas],
            "isr": [node.id for node in part.isr],
            "start_offset": start,
            "end_offset": end,
            "offsets": None if start is None or end is None else end - start,
            "folded_into": None if closed is None else closed.into.get(part.id),
        }


def _overrides(entries: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """The overrides of this topic."""
    return {entry["name"]: entry["value"] for entry in entries if entry["source"] == "DYNAMIC_TOPIC_CONFIG"}
