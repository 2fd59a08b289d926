"""A broker's view of its cluster, as any client would request it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata

from forebay.lazy import dataclass

_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    brokers: tuple[int, ...]
    controller_id: int
    leaders: dict[int, int]
    """The number of partitions that each broker leads."""
    replicas: dict[int, int]
    partitions: int
    under_replicated: int
    """Partitions with fewer replicas in sync than they have."""
    leaderless: int


def seen_by(address: str, login: Mapping[str, str] | None = None) -> Seen | None:
    """None if the broker does not answer. `login`: librdkafka's settings of a client that may ask."""
    found = _metadata(address, login)
    if found is None:
        return None
    partitions = [part for topic in found.topics.values() for part in topic.partitions.values()]
    return Seen(
        brokers=tuple(sorted(found.brokers)),
        controller_id=found.controller_id,
        leaders={node: sum(part.leader == node for part in partitions) for node in found.brokers},
        replicas={node: sum(node in part.replicas for part in partitions) for node in found.brokers},
        partitions=len(partitions),
        under_replicated=sum(len(part.isrs) < len(part.replicas) for part in partitions),
        leaderless=sum(part.leader < 0 for part in partitions),
    )


def leader_seen_by(
    address: str, topic: str, partition: int, login: Mapping[str, str] | None = None
) -> int | None:
    """None if the broker does not answer, or has no such partition; -1 if it has no leader."""
    found = _metadata(address, login)
    known = found.topics.get(topic) if found is not None else None
    return known.partitions[partition].leader if known and partition in known.partitions else None


def _metadata(address: str, login: Mapping[str, str] | None) -> ClusterMetadata | None:
    if not _listens(address):
        return None  # librdkafka would retry until the time is up
    quiet: dict[str, Any] = {"log_level": 0, "error_cb": _ignore}
    settings = {**(login or {}), "bootstrap.servers": address, **quiet}
    try:
        return AdminClient(settings).list_topics(timeout=_SECONDS)
    except KafkaException:
        return None


def _listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _SECONDS).close()
    except OSError:
        return False
    return True


def _ignore(_error: KafkaError) -> None:
    """A broker that is down is expected here."""
