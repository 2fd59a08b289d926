"""Writes the markers that end transactions, for the coordinator on this broker or on another.

A marker goes to the leader of its partition: it is appended here, or sent there, with all markers for that
broker in one request. The sender does not always learn if it was written. So a marker is sent until its
partition has confirmed it, and partitions accept the same marker twice.

The batches of a transaction for a folded partition may be in two logs: in its own, and under an alias in that
of the partition that takes its batches. Each log gets a marker. A coordinator that does not know of the fold
yet would miss the second one, so the folded partition accepts no marker from it. When the partition takes
messages again, the other one accepts no marker under an alias from a coordinator that does not know of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TypeAlias

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.partition.closed_partition import is_settled
from forebay.broker.partition.fold_state import FoldedInto
from forebay.broker.partition.own_appends import append_marker
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged, WriteCycle
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.topic_folds import Stop
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.topics.more_partitions import marker_stops
from forebay.core.partition.folds.aliases import PRODUCER_IDS_END, alias_of
from forebay.core.partition.folds.closed_partition import takes
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.batch import EndTxnMarker
from forebay.wire.messages.write_txn_markers import (
    UNKNOWN_REVISION,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

SUPERSEDED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""Refusals of a partition that no longer needs the marker."""
_SILENCE = ErrorCode.UNKNOWN_SERVER_ERROR
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
    named: int
    """The partition of the transaction. It differs from the one that gets the marker if it is folded."""
    bumps_epoch: bool = False
    """Transaction version 2: the marker carries the epoch after the transaction's."""
    revision: int = UNKNOWN_REVISION
    """The revision of the coordinator's image. Administrators, who abort transactions, have none."""

    @property
    def at(self) -> TopicPartition:
        return self.topic, self.named


MarkerResult: TypeAlias = tuple[MarkerWrite, int]
"""A marker, and the error code that its partition answered with."""


class MarkerAppends:
    """Appends markers to the partitions that this broker leads, for any coordinator."""

    def __init__(self, write_cycle: WriteCycle, partitions: PartitionTable, time: BrokerTime) -> None:
        self._write_cycle = write_cycle
        self._partitions = partitions
        self._time = time

    def append(self, writes: Iterable[MarkerWrite], done: Callable[[list[Appended]], None]) -> None:
        """Append markers; `done` gets a result for each of them, in order, once they are committed.

        They are written when the requests of the current event have been handled.
        """
        results = [self._append(write) for write in writes]
        self._write_cycle.add(Unacknowledged(results, ACKS_ALL, lambda: done(results)))

    def _append(self, write: MarkerWrite) -> Appended:
        result = Appended(write.index)
        try:
            partition = self._partitions.get(write.topic, write.index)
            if partition.is_filled:
                return result  # no transaction writes there
            result.partition = partition
            if not self._concerns(partition, write):
                # The epoch may be known from a marker that is not committed yet: the response waits for it. A
                # batch whose transaction is being verified is too late, as it is after a marker.
                next_epoch = write.marker.producer_epoch if write.bumps_epoch else None
                partition.verifications.ended(write.marker.producer_id, next_epoch=next_epoch)
                return result
            if not partition.enough_replicas:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"fewer replicas of {partition} are in sync than min.insync.replicas asks for",
                )
            now_ms = self._time.now_ms()
            header = append_marker(partition, write.marker, now_ms, bumps_epoch=write.bumps_epoch)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            return result
        result.base_offset = header.base_offset
        self._write_cycle.queued(partition, header.size)
        return result

    def _concerns(self, partition: Partition, write: MarkerWrite) -> bool:
        """True if a partition needs a marker. Raises KafkaError if that is not known yet."""
        if partition.fold is not None:
            return _concerns_closed(partition, partition.fold, write)
        producer_id = write.marker.producer_id
        if producer_id < PRODUCER_IDS_END:
            return True
        topic = self._partitions.topic_of(partition)
        _check_revision(partition, topic.revision, write)
        if takes(topic, partition.index, producer_id) or _in_transaction(partition, write):
            return True
        if partition.is_followed:
            return False
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"not all replicas follow the leader of {partition} yet"
        )


def _concerns_closed(partition: Partition, fold: FoldedInto, write: MarkerWrite) -> bool:
    """True if a closed partition needs a marker: the transaction is open in its log.

    This is final once all of its log is committed. Raises KafkaError until then.
    """
    _check_revision(partition, fold.revision, write)
    if fold.is_returning:
        if _ends_epoch(partition, write):
            return True  # what is gathered waits for it
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{partition} takes messages again in a moment")
    if not is_settled(partition):
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, f"not all of {partition} is committed yet")
    return _in_transaction(partition, write)


def _check_revision(partition: Partition, revision: int, write: MarkerWrite) -> None:
    """Refuse a marker whose coordinator may not know of all partitions that need one."""
    if write.revision != UNKNOWN_REVISION and write.revision < revision:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"where messages of {partition.topic} go has changed with revision {revision} of the metadata, "
            f"the coordinator knows {write.revision}",
        )


def _in_transaction(partition: Partition, write: MarkerWrite) -> bool:
    state = partition.producers.find(write.marker.producer_id)
    return state is not None and state.in_transaction


def _ends_epoch(partition: Partition, write: MarkerWrite) -> bool:
    """True if the open transaction has the epoch that this marker ends, so the marker belongs to it."""
    state = partition.producers.find(write.marker.producer_id)
    return state is not None and state.in_transaction and state.producer_epoch < write.marker.producer_epoch


class MarkerWriter:
    """Has the leaders of partitions write markers, for the coordinator on this broker.

    Thousands of transactions may end in one step. So only a few markers are written here in one turn of the
    loop, which has other requests to serve. And only a few are in flight to another broker: it handles one
    after the other, and the timeout of each begins when it is sent.
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

        A marker that is no longer `wanted` when its turn comes is not written.
        """
        by_leader: dict[int, list[MarkerWrite]] = {}
        for at in partitions:
            for leader, write in self._writes(marker, at, bumps_epoch=bumps_epoch):
                by_leader.setdefault(leader, []).append(write)
        outcomes = await asyncio.gather(
            *(self._write_at(leader, writes, wanted) for leader, writes in by_leader.items())
        )
        codes: dict[TopicPartition, int] = {}
        for write, code in chain.from_iterable(outcomes):
            codes[write.at] = _combined(codes.get(write.at, ErrorCode.NONE), code)
        return codes

    def _writes(
        self, marker: EndTxnMarker, at: TopicPartition, *, bumps_epoch: bool
    ) -> Iterator[tuple[int, MarkerWrite]]:
        """Yields the markers for one partition of the transaction, each with its leader. Mostly it is one."""
        image, (topic, named) = self._metadata.image, at
        found = image.topics.get(topic)
        stops = () if found is None else marker_stops(found, named)
        for index, generation in stops or (Stop(named, None),):
            producer_id = alias_of(marker.producer_id, named, generation)
            state = image.partition(topic, index)
            write = MarkerWrite(
                marker=marker._replace(producer_id=producer_id),
                topic=topic,
                index=index,
                named=named,
                bumps_epoch=bumps_epoch,
                revision=image.revision,
            )
            yield NO_LEADER if state is None else state.leader, write

    async def _write_at(
        self, leader: int, writes: list[MarkerWrite], wanted: Callable[[], bool]
    ) -> list[MarkerResult]:
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

    async def _write_here(self, writes: list[MarkerWrite], wanted: Callable[[], bool]) -> list[MarkerResult]:
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
        return [(write, result.error_code) for write, result in zip(writes, results, strict=True)]

    async def _write_there(self, leader: int, writes: list[MarkerWrite]) -> list[MarkerResult]:
        by_producer: dict[int, list[MarkerWrite]] = {}
        for write in writes:
            by_producer.setdefault(write.marker.producer_id, []).append(write)
        request = WriteTxnMarkersRequest(
            markers=[_to_send(own) for own in by_producer.values()], revision=writes[0].revision
        )
        response = await self._peers.ask(leader, request, timeout_s=_TIMEOUT_S)
        assert isinstance(response, WriteTxnMarkersResponse)
        codes = {
            (result.producer_id, topic.name, partition.partition_index): partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        return [
            (write, codes.get((write.marker.producer_id, write.topic, write.index), _SILENCE))
            for write in writes
        ]


def _to_send(writes: list[MarkerWrite]) -> WritableTxnMarker:
    """The marker of one producer in a request, for all of its partitions."""
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


def _all(writes: list[MarkerWrite], code: ErrorCode) -> list[MarkerResult]:
    return [(write, code) for write in writes]


def _combined(one: int, other: int) -> int:
    """The error code for a partition with two markers: an error that is retried counts before all others."""
    return max(one, other, key=lambda code: (code != ErrorCode.NONE, code not in SUPERSEDED))
