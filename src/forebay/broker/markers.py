"""Writing the ends of transactions into partitions, for the coordinator on this broker or on another.

A marker goes to the leader of its partition: appended here, or sent there, all of one broker in one request.
Who sends does not always learn whether it was written. So markers are written again until that is certain,
and partitions take the same marker twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.broker.appends import ACKS_ALL, Appended, Unacknowledged
from forebay.core.image import NO_LEADER
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.checkpoint import TopicPartition
from forebay.wire.batch import EndTxnMarker
from forebay.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

BUMPS_EPOCH_FROM = 2
"""The transaction version whose markers carry the epoch after the transaction's."""
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerWrite:
    """One marker for one partition."""

    marker: EndTxnMarker
    topic: str
    index: int
    bumps_epoch: bool = False
    """Transaction version 2: the marker carries the epoch after the transaction's."""


async def write_markers(
    broker: Broker, marker: EndTxnMarker, partitions: Iterable[TopicPartition], *, bumps_epoch: bool
) -> dict[TopicPartition, int]:
    """Have the leaders write a marker into partitions; an error code for each, once they are committed."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for at in partitions:
        state = broker.image.partition(*at)
        by_leader.setdefault(NO_LEADER if state is None else state.leader, []).append(at)
    outcomes = await asyncio.gather(
        *(
            _write_at(broker, leader, marker, own, bumps_epoch=bumps_epoch)
            for leader, own in by_leader.items()
        )
    )
    return {at: code for outcome in outcomes for at, code in outcome.items()}


async def _write_at(
    broker: Broker, leader: int, marker: EndTxnMarker, partitions: list[TopicPartition], *, bumps_epoch: bool
) -> dict[TopicPartition, int]:
    if leader == broker.node_id:
        return await _write_here(broker, marker, partitions, bumps_epoch=bumps_epoch)
    if leader == NO_LEADER:
        return dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)
    try:
        return await _write_there(broker, leader, marker, partitions, bumps_epoch=bumps_epoch)
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)


async def _write_here(
    broker: Broker, marker: EndTxnMarker, partitions: list[TopicPartition], *, bumps_epoch: bool
) -> dict[TopicPartition, int]:
    outcome: asyncio.Future[list[Appended]] = broker.loop.create_future()

    def done(results: list[Appended]) -> None:
        if not outcome.done():
            outcome.set_result(results)

    append_markers(
        broker,
        [
            MarkerWrite(marker=marker, topic=topic, index=index, bumps_epoch=bumps_epoch)
            for topic, index in partitions
        ],
        done,
    )
    broker.appends.finish_soon()
    results = await outcome
    return {at: result.error_code for at, result in zip(partitions, results, strict=True)}


async def _write_there(
    broker: Broker, leader: int, marker: EndTxnMarker, partitions: list[TopicPartition], *, bumps_epoch: bool
) -> dict[TopicPartition, int]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    wanted = WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=BUMPS_EPOCH_FROM if bumps_epoch else 0,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=own) for name, own in topics.items()],
    )
    response = await broker.peers.ask(leader, WriteTxnMarkersRequest(markers=[wanted]), timeout_s=_TIMEOUT_S)
    assert isinstance(response, WriteTxnMarkersResponse)
    codes = {
        (topic.name, partition.partition_index): partition.error_code
        for result in response.markers
        for topic in result.topics
        for partition in topic.partitions
    }
    return {at: codes.get(at, ErrorCode.UNKNOWN_SERVER_ERROR) for at in partitions}


def append_markers(
    broker: Broker, writes: Iterable[MarkerWrite], done: Callable[[list[Appended]], None]
) -> None:
    """Append markers; `done` gets an outcome for each of them, in order, once they are committed.

    They are written when the requests of the current event have been handled.
    """
    results = [_append(broker, write) for write in writes]
    broker.appends.add(Unacknowledged(results, ACKS_ALL, lambda: done(results)))


def _append(broker: Broker, write: MarkerWrite) -> Appended:
    result = Appended(write.index)
    try:
        partition = broker.replicas.get(write.topic, write.index)
        result.partition = partition
        if not partition.enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"fewer replicas of {partition} are in sync than min.insync.replicas asks for",
            )
        header = partition.append_marker(write.marker, broker.now_ms(), bumps_epoch=write.bumps_epoch)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.base_offset = header.base_offset
    broker.appends.queued(partition, header.size)
    return result
