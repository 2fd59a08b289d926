"""OffsetForLeaderEpoch: where a leader epoch ended, so that a client can tell whether its log diverged."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.leader_epoch_checks import KnownTerm, check_epoch, check_leader_epoch, hear_of
from forebay.broker.partition.table import PartitionTable
from forebay.coordination.metadata import Metadata
from forebay.errors import KafkaError
from forebay.wire.messages import offset_for_leader_epoch as wire


def handle(
    partitions: PartitionTable,
    metadata: Metadata,
    _context: RequestContext,
    request: wire.OffsetForLeaderEpochRequest,
) -> wire.OffsetForLeaderEpochResponse | Coroutine[Any, Any, wire.OffsetForLeaderEpochResponse]:
    terms = [
        KnownTerm(partitions.source_of(topic.topic), wanted.partition, wanted.current_leader_epoch)
        for topic in request.topics
        for wanted in topic.partitions
    ]
    if any(term.is_news(metadata.image) for term in terms):
        return _answer_later(partitions, metadata, terms, request)
    return _answer(partitions, request)


async def _answer_later(
    partitions: PartitionTable,
    metadata: Metadata,
    terms: Sequence[KnownTerm],
    request: wire.OffsetForLeaderEpochRequest,
) -> wire.OffsetForLeaderEpochResponse:
    await hear_of(terms, metadata)
    return _answer(partitions, request)


def _answer(
    partitions: PartitionTable, request: wire.OffsetForLeaderEpochRequest
) -> wire.OffsetForLeaderEpochResponse:
    return wire.OffsetForLeaderEpochResponse(
        topics=[
            wire.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_partition(partitions, topic.topic, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _partition(
    partitions: PartitionTable, topic: str, wanted: wire.OffsetForLeaderPartition
) -> wire.EpochEndOffset:
    try:
        unused = partitions.unused_epoch(partitions.source_of(topic), wanted.partition)
        if unused is not None:  # it is empty, and not opened for this
            check_epoch(unused, wanted.current_leader_epoch)
            known = (unused, 0) if wanted.leader_epoch == unused else (-1, -1)
            return wire.EpochEndOffset(partition=wanted.partition, leader_epoch=known[0], end_offset=known[1])
        partition = partitions.get_with_lease(partitions.source_of(topic), wanted.partition)
        check_leader_epoch(partition, wanted.current_leader_epoch)
        if wanted.leader_epoch == partition.leader_epoch:
            epoch, end_offset = wanted.leader_epoch, partition.log.end_offset
        else:
            epoch, end_offset = partition.end_of_epoch(wanted.leader_epoch, partition.log.end_offset)
    except KafkaError as error:
        return wire.EpochEndOffset(partition=wanted.partition, error_code=error.code)
    return wire.EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
