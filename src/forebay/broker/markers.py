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
_WRITES_PER_TURN = 8
_ON_THE_WAY_MAX = 32
"""Transactions whose markers are sent to one broker at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerWrite:
    """One marker for one partition."""

    marker: EndTxnMarker
    topic: str
    index: int
    bumps_epoch: bool = False
    """Transaction version 2: the marker carries the epoch after the transaction's."""

    @property
    def at(self) -> TopicPartition:
        return self.topic, self.index


class MarkerWriter:
    """Has the leaders of partitions write markers, for the coordinator on this broker.

    Thousands of transactions may end in one step. So only some of them write here in one turn of the loop,
    which has others to serve; and only some are on their way to another broker, since it takes one after the
    other, and the time that each may take begins when it is sent.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._here = asyncio.Semaphore(_WRITES_PER_TURN)
        self._there: dict[int, asyncio.Semaphore] = {}

    async def write(
        self,
        marker: EndTxnMarker,
        partitions: Iterable[TopicPartition],
        *,
        bumps_epoch: bool,
        wanted: Callable[[], bool] = lambda: True,
    ) -> dict[TopicPartition, int]:
        """An error code for each partition, once the markers are committed.

        When its turn comes, a marker that is not `wanted` any more is not written.
        """
        by_leader: dict[int, list[MarkerWrite]] = {}
        for topic, index in partitions:
            state = self._broker.image.partition(topic, index)
            write = MarkerWrite(marker=marker, topic=topic, index=index, bumps_epoch=bumps_epoch)
            by_leader.setdefault(NO_LEADER if state is None else state.leader, []).append(write)
        outcomes = await asyncio.gather(
            *(self._write_at(leader, writes, wanted) for leader, writes in by_leader.items())
        )
        return {at: code for outcome in outcomes for at, code in outcome.items()}

    async def _write_at(
        self, leader: int, writes: list[MarkerWrite], wanted: Callable[[], bool]
    ) -> dict[TopicPartition, int]:
        if leader == self._broker.node_id:
            return await self._write_here(writes, wanted)
        if leader == NO_LEADER:
            return _all(writes, ErrorCode.LEADER_NOT_AVAILABLE)
        async with self._there.setdefault(leader, asyncio.Semaphore(_ON_THE_WAY_MAX)):
            if not wanted():
                return _all(writes, ErrorCode.NOT_COORDINATOR)
            try:
                return await self._write_there(leader, writes)
            except KafkaError as error:
                return _all(writes, error.code)

    async def _write_here(
        self, writes: list[MarkerWrite], wanted: Callable[[], bool]
    ) -> dict[TopicPartition, int]:
        outcome: asyncio.Future[list[Appended]] = self._broker.loop.create_future()

        def done(results: list[Appended]) -> None:
            if not outcome.done():
                outcome.set_result(results)

        async with self._here:
            if not wanted():
                return _all(writes, ErrorCode.NOT_COORDINATOR)
            append_markers(self._broker, writes, done)
            self._broker.appends.finish_soon()
            await asyncio.sleep(0)  # the next ones come in another turn
        results = await outcome
        return {write.at: result.error_code for write, result in zip(writes, results, strict=True)}

    async def _write_there(self, leader: int, writes: list[MarkerWrite]) -> dict[TopicPartition, int]:
        request = WriteTxnMarkersRequest(markers=[_to_send(writes)])
        response = await self._broker.peers.ask(leader, request, timeout_s=_TIMEOUT_S)
        assert isinstance(response, WriteTxnMarkersResponse)
        codes = {
            (topic.name, partition.partition_index): partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        return {write.at: codes.get(write.at, ErrorCode.UNKNOWN_SERVER_ERROR) for write in writes}


def _to_send(writes: list[MarkerWrite]) -> WritableTxnMarker:
    """One marker for all of its partitions."""
    marker = writes[0].marker
    topics: dict[str, list[int]] = {}
    for write in writes:
        topics.setdefault(write.topic, []).append(write.index)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=BUMPS_EPOCH_FROM if writes[0].bumps_epoch else 0,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=own) for name, own in topics.items()],
    )


def _all(writes: list[MarkerWrite], code: ErrorCode) -> dict[TopicPartition, int]:
    return {write.at: code for write in writes}


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
