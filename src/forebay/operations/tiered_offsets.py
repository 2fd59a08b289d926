"""Which part of tiered topics is on the brokers' disks, and which in the object store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from forebay.operations.client import Client, CommandError
from forebay.operations.wire import BrokerConnections
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD = -4, -6


class TieredOffsets(NamedTuple):
    local_start: int
    """The first offset on the leader's disk."""
    copied_to: int
    """Everything below is in the object store."""


def tiered_offsets(client: Client, topic: TopicDescription) -> dict[int, TieredOffsets]:
    """By partition; without those whose leader does not answer, or does not know it yet."""
    connections = BrokerConnections(client)
    found: dict[int, TieredOffsets] = {}
    try:
        by_leader: dict[str, list[int]] = {}
        for part in topic.partitions:
            if part.leader is not None:
                by_leader.setdefault(f"{part.leader.host}:{part.leader.port}", []).append(part.id)
        for address, partitions in by_leader.items():
            local = _ask(connections, address, topic.name, partitions, EARLIEST_LOCAL)
            copied = _ask(connections, address, topic.name, partitions, EARLIEST_PENDING_UPLOAD)
            found |= {each: TieredOffsets(local[each], copied[each]) for each in local.keys() & copied.keys()}
    except CommandError:
        return found  # the rest of the description still helps
    finally:
        connections.close()
    return found


def _ask(
    connections: BrokerConnections, address: str, topic: str, partitions: Sequence[int], timestamp: int
) -> dict[int, int]:
    wanted = [ListOffsetsPartition(partition_index=each, timestamp=timestamp) for each in partitions]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    answer = connections.at(address).ask(request, ListOffsetsResponse)
    return {
        each.partition_index: each.offset
        for each in answer.topics[0].partitions
        if not each.error_code and each.offset >= 0
    }
