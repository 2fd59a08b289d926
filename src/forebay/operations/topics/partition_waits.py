"""The obstacles of partitions that are being opened again, or copied before they are closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from forebay.core.partition.folds.aliases import PRODUCER_IDS_END, named_by
from forebay.operations.client import Client, CommandError, join_address
from forebay.operations.topics.partition_counts import Closed
from forebay.operations.wire import BrokerConnections
from forebay.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)

if TYPE_CHECKING:
    from confluent_kafka import TopicPartitionInfo
    from confluent_kafka.admin import TopicDescription

_NAMED_MAX = 5
"""The number of producers that are named."""


class _OpenTransaction(NamedTuple):
    producer_id: int
    """As the partition keeps it: an alias, if the batch was sent for another one."""
    start_offset: int


def waits(client: Client, topic: TopicDescription, closed: Closed, min_insync: int) -> list[str]:
    """One line for each reason that is visible from outside."""
    copied = closed.copies.next if closed.copies and closed.copies.next < closed.copies.end else None
    busy = {*closed.gathering, *closed.draining, *(() if copied is None else (copied,))}
    parts = {part.id: part for part in topic.partitions if part.id in busy}
    reasons = [reason for index in sorted(parts) for reason in _of_replicas(parts[index], min_insync)]
    asked = [parts[index] for index in (*closed.draining, copied) if index in parts]
    with closing(BrokerConnections(client)) as connections:
        for part in asked:
            found = _open_transactions(connections, topic.name, part)
            reasons += _of_transactions(part.id, _of_interest(found, part.id, closed))
    return reasons


def _of_replicas(part: TopicPartitionInfo, min_insync: int) -> Iterator[str]:
    if part.leader is None or part.leader.id < 0:
        yield f"partition {part.id} has no leader"
    elif len(part.isr) < min(min_insync, len(part.replicas)):
        yield f"partition {part.id} has {len(part.isr)} of the {min_insync} replicas in sync that it needs"


def _open_transactions(
    connections: BrokerConnections, topic: str, part: TopicPartitionInfo
) -> list[_OpenTransaction]:
    """The open transactions as its leader knows them; none if it does not answer."""
    if part.leader is None or part.leader.id < 0:
        return []
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[part.id])])
    try:
        connection = connections.at(join_address(part.leader.host, part.leader.port))
        (answered,) = connection.ask(request, DescribeProducersResponse).topics
    except CommandError:
        return []
    return [
        _OpenTransaction(state.producer_id, state.current_txn_start_offset)
        for partition in answered.partitions
        for state in partition.active_producers
        if state.current_txn_start_offset >= 0
    ]


def _of_interest(found: Iterable[_OpenTransaction], index: int, closed: Closed) -> list[_OpenTransaction]:
    """All of them in a partition that is being copied; else those of messages that now go elsewhere."""
    if index not in closed.draining:
        return list(found)
    return [
        each
        for each in found
        if each.producer_id >= PRODUCER_IDS_END
        and closed.into.get(named_by(each.producer_id, index).partition) != index
    ]


def _of_transactions(index: int, found: list[_OpenTransaction]) -> list[str]:
    if not found:
        return []
    named = ", ".join(
        f"producer {named_by(each.producer_id, index).producer_id} since offset {each.start_offset}"
        for each in found[:_NAMED_MAX]
    )
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return [f"transactions are open in partition {index}: {named}{more}"]
