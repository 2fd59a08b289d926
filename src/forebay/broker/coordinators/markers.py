"""Writing the ends of transactions into partitions, for the coordinator on this broker or on another.

A marker goes to the leader of its partition: appended here, or sent there, all of one broker in one request.
The sender does not always learn whether it was written. So markers are written again until that is certain,
and partitions take the same marker twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.peers import Peers
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged, WriteCycle
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import NO_LEADER
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import EndTxnMarker
from forebay.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

BUMPS_EPOCH_FROM = 2
"""The transaction version whose markers carry the epoch after the transaction's."""
_TIMEOUT_S = 10.0
_WRITES_PER_TURN = 8
_IN_FLIGHT_MAX = 32
"""Transactions whose markers are in flight to one broker at a time."""


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


class MarkerAppends:
    """Appends markers to the partitions that this broker leads, whichever coordinator wants them."""

    def __init__(self, write_cycle: WriteCycle, partitions: PartitionTable, time: BrokerTime) -> None:
        self._write_cycle = write_cycle
        self._partitions = partitions
        self._time = time

    def append(self, writes: Iterable[MarkerWrite], done: Callable[[list[Appended]], None]) -> None:
        """Append markers; `done` gets an outcome for each of them, in order, once they are committed.

        They are written when the requests of the current event have been handled.
        """
        results = [self._append(write) for write in writes]
        self._write_cycle.add(Unacknowledged(results, ACKS_ALL, lambda: done(results)))

    def _append(self, write: MarkerWrite) -> Appended:
        result = Appended(write.index)
        try:
            partition = self._partitions.get(write.topic, write.index)
            result.partition = partition
            if not partition.enough_replicas:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"fewer replicas of {partition} are in sync than min.insync.replicas asks for",
                )
            header = partition.append_marker(write.marker, self._time.now_ms(), bumps_epoch=write.bumps_epoch)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return result
        result.base_offset = header.base_offset
        self._write_cycle.queued(partition, header.size)
        return result


class MarkerWriter:
    """Has the leaders of partitions write markers, for the coordinator on this broker.

    Thousands of transactions may end in one step. So the markers of only a few are written here in one turn
    of the loop, which has other requests to serve. And only a few are in flight to another broker: it handles
    one after the other, and the timeout of each begins when it is sent.
    """

    def __init__(
        self,
        appends: MarkerAppends,
        peers: Peers,
        metadata: Metadata,
        write_cycle: WriteCycle,
        loop: asyncio.AbstractEventLoop,
        *,
        node_id: int,
    ) -> None:
        self._appends = appends
        self._peers = peers
        self._metadata = metadata
        self._write_cycle = write_cycle
        self._loop = loop
        self._node_id = node_id
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
            state = self._metadata.image.partition(topic, index)
            write = MarkerWrite(marker=marker, topic=topic, index=index, bumps_epoch=bumps_epoch)
            by_leader.setdefault(NO_LEADER if state is None else state.leader, []).append(write)
        outcomes = await asyncio.gather(
            *(self._write_at(leader, writes, wanted) for leader, writes in by_leader.items())
        )
        return {at: code for outcome in outcomes for at, code in outcome.items()}

    async def _write_at(
        self, leader: int, writes: list[MarkerWrite], wanted: Callable[[], bool]
    ) -> dict[TopicPartition, int]:
        if leader == self._node_id:
            return await self._write_here(writes, wanted)
        if leader == NO_LEADER:
            return _all(writes, ErrorCode.LEADER_NOT_AVAILABLE)
        async with self._there.setdefault(leader, asyncio.Semaphore(_IN_FLIGHT_MAX)):
            if not wanted():
                return _all(writes, ErrorCode.NOT_COORDINATOR)
            try:
                return await self._write_there(leader, writes)
            except KafkaError as error:
                return _all(writes, error.code)

    async def _write_here(
        self, writes: list[MarkerWrite], wanted: Callable[[], bool]
    ) -> dict[TopicPartition, int]:
        outcome: asyncio.Future[list[Appended]] = self._loop.create_future()

        def done(results: list[Appended]) -> None:
            if not outcome.done():
                outcome.set_result(results)

        async with self._here:
            if not wanted():
                return _all(writes, ErrorCode.NOT_COORDINATOR)
            self._appends.append(writes, done)
            self._write_cycle.finish_soon()
            await asyncio.sleep(0)  # the next ones come in another turn
        results = await outcome
        return {write.at: result.error_code for write, result in zip(writes, results, strict=True)}

    async def _write_there(self, leader: int, writes: list[MarkerWrite]) -> dict[TopicPartition, int]:
        request = WriteTxnMarkersRequest(markers=[_to_send(writes)])
        response = await self._peers.ask(leader, request, timeout_s=_TIMEOUT_S)
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
