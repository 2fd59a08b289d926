"""The part that all fetches have in common: look at the partitions named, answer with ranges of files.

Nothing is read here. A range whose bytes would have to come from the device first is loaded by a thread
before the answer goes out; damaged bytes are never sent.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable

from forebay.broker.fetch.cold_reads import Outcomes
from forebay.broker.fetch.fetch_host import FetchHost
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.partition.partition import Partition
from forebay.broker.tiers.missed_chunk import Missed
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.cluster.registration import addresses_by
from forebay.core.partition.fetch_session import FetchContext, FetchTarget
from forebay.core.views.catalog import named_topic
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

log = logging.getLogger(__name__)

NO_RECORDS = b""
_LOOK_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Fetch(ABC):
    """One request. Derived classes say what may be read of a partition."""

    __slots__ = (
        "_found",
        "_listener",
        "_missed",
        "_partitions",
        "_request",
        "_service",
        "_session",
        "_size",
        "_slices",
        "_urgent",
    )

    def __init__(
        self, service: FetchHost, request: FetchRequest, session: FetchContext, listener: str
    ) -> None:
        """`listener` names what the client came by."""
        self._service = service
        self._listener = listener
        self._request = request
        self._session = session

    # -- reading -------------------------------------------------------------------------------------

    def _read(self) -> bool:
        """Look at every partition that the request wants; whether to answer without waiting for more.

        That is when the answer holds something other than records, such as an error, and when it has no room
        for all the records that there are: those left out count towards min_bytes, and only another request
        can have them.
        """
        self._begin_reading()
        self._read_targets(self._session.targets, self._bytes_max())
        return self._urgent

    def _begin_reading(self) -> None:
        self._found: list[tuple[FetchTarget, PartitionData, int]] = []
        self._partitions: list[Partition] = []
        self._slices: list[tuple[Partition, LogSlice]] = []
        self._missed: list[Missed] = []
        self._size = 0
        self._urgent = False

    def _bytes_max(self) -> int:
        """The most bytes of the answer."""
        return min(self._request.max_bytes, self._service.settings.current.fetch.max_bytes)

    def _read_targets(self, targets: Iterable[FetchTarget], left: int) -> int:
        """Look at these partitions; how many bytes of the answer are left."""
        for target in targets:
            try:
                data, size = self._read_target(target, left)
            except KafkaError as error:
                data, size = self._failed(target, error), 0
                self._urgent = True
                self._service.metrics.fetch_failures += 1
            self._found.append((target, data, size))
            self._size += size
            left -= size
        return left

    @abstractmethod
    def _read_target(self, target: FetchTarget, left: int) -> tuple[PartitionData, int]:
        """The data of one partition, and its size. Raises KafkaError with the code to answer with."""

    def _slice(self, partition: Partition, target: FetchTarget, left: int, end: int) -> LogSlice:
        """The batches below `end` that fit."""
        wanted = target.request
        max_bytes = max(min(wanted.partition_max_bytes, left), 0)
        found = None
        if partition.remote is not None and wanted.fetch_offset < partition.log.start_offset:
            found = self._remote_slice(partition, wanted.fetch_offset, max_bytes, min_one=self._size == 0)
        if found is None:
            found = partition.log.read(
                wanted.fetch_offset, max_bytes, min_one=self._size == 0, upper_offset=end
            )
        self._partitions.append(partition)
        if found.more:
            self._urgent = True
        if found.range is not None:
            self._slices.append((partition, found))
        return found

    def _remote_slice(
        self, partition: Partition, offset: int, max_bytes: int, *, min_one: bool
    ) -> LogSlice | None:
        """Batches that are in the object store only. Without a range if they are not here yet: then they are
        on their way, or it is not known yet what there is."""
        reads = self._service.remote_reads()
        if reads is None:
            return LogSlice(None, offset)
        found = reads.read(partition, offset, max_bytes, min_one=min_one)
        if isinstance(found, LogSlice):
            return found
        if found is not None:
            self._missed.append(found)
        return LogSlice(None, offset)

    # -- answering -----------------------------------------------------------------------------------

    def _cold(self) -> list[tuple[Partition, LogSlice]]:
        return [(p, found) for p, found in self._slices if not p.log.is_warm(found)]

    def _load(self, reply: Reply) -> None:
        """Have the device's bytes brought into memory and checked, then answer."""
        cold = self._cold()

        def done(outcomes: Outcomes) -> None:
            if reply.abandoned:
                return
            try:
                self._give_up(cold, outcomes)
                reply.resolve(self._response())
            except Exception:
                log.exception("a fetch could not be answered")
                reply.abort()

        self._service.cold_reads.load([(p.log.files, found) for p, found in cold], done)

    def _give_up(self, cold: list[tuple[Partition, LogSlice]], outcomes: Outcomes) -> None:
        """Bytes that are damaged, or gone with their log, are not sent: their partition has the error."""
        errors: dict[int, KafkaError | None] = {}
        for (partition, found), error in zip(cold, outcomes, strict=True):
            if error is not None:
                errors[id(found.range)] = _failure_of(partition, found, error)
        for i, (target, data, size) in enumerate(self._found if errors else ()):
            if id(data.records) in errors:
                failure = errors[id(data.records)]
                if failure is None:
                    data.records = NO_RECORDS
                else:
                    data = self._failed(target, failure)
                self._found[i] = (target, data, 0)
                self._size -= size

    def _response(self) -> FetchResponse:
        topics: dict[str | bytes, list[PartitionData]] = {}
        self._collect_answers(self._found, topics)
        return self._made_of(topics)

    def _collect_answers(
        self,
        found: Iterable[tuple[FetchTarget, PartitionData, int]],
        topics: dict[str | bytes, list[PartitionData]],
    ) -> None:
        session = self._session
        for target, data, size in found:
            if session.must_answer(
                target,
                data.high_watermark,
                data.log_start_offset,
                size,
                data.error_code,
                forced=data.diverging_epoch.epoch >= 0,
            ):
                topics.setdefault(target.topic, []).append(data)

    def _made_of(self, topics: dict[str | bytes, list[PartitionData]]) -> FetchResponse:
        self._count_sent()
        return FetchResponse(
            session_id=self._session.session_id,
            responses=[self._topic(topic, partitions) for topic, partitions in topics.items()],
            node_endpoints=self._leaders(topics),
        )

    def _count_sent(self) -> None:
        if not self._size:
            return
        self._service.metrics.bytes_out += self._size
        for partition, found in self._slices:
            if found.range is not None:
                partition.traffic.bytes_out += found.range.length

    def _leaders(self, topics: dict[str | bytes, list[PartitionData]]) -> list[NodeEndpoint]:
        """Where the leaders are that the answer names (KIP-951): a client need not ask for them."""
        nodes = {data.current_leader.leader_id for found in topics.values() for data in found} - {-1}
        if not nodes:
            return []
        brokers = self._service.metadata.image.brokers
        found = addresses_by(self._listener, brokers, nodes)
        return [NodeEndpoint(node_id=id, host=host, port=port, rack=rack) for id, host, port, rack in found]

    def _topic(self, topic: str | bytes, partitions: list[PartitionData]) -> FetchableTopicResponse:
        if isinstance(topic, bytes):
            return FetchableTopicResponse(topic_id=topic, partitions=partitions)
        return FetchableTopicResponse(topic=topic, partitions=partitions)

    def _failed(self, target: FetchTarget, error: KafkaError) -> PartitionData:
        if isinstance(error, StorageError):  # everything else is between the client and us
            log.warning(
                "a fetch failed",
                extra={"partition": target.request.partition, "code": error.code.name, "reason": str(error)},
            )
        data = PartitionData(
            partition_index=target.request.partition,
            error_code=error.code,
            high_watermark=-1,
            records=NO_RECORDS,
        )
        if error.code in _LOOK_ELSEWHERE:
            data.current_leader = self._current_leader(target)
        return data

    def _topic_name(self, target: FetchTarget) -> str:
        topic = target.topic
        return topic if isinstance(topic, str) else self._service.partitions.name_of(topic)

    def _current_leader(self, target: FetchTarget) -> LeaderIdAndEpoch:
        image, topic, index = self._service.metadata.image, target.topic, target.request.partition
        found = named_topic(image, topic)
        if found is None or not 0 <= index < len(found.partitions):
            return LeaderIdAndEpoch()
        state = found.partitions[index]
        if state.leader == NO_LEADER:
            return LeaderIdAndEpoch()
        return LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)


def _failure_of(partition: Partition, found: LogSlice, error: KafkaError) -> KafkaError | None:
    """Why a slice could not be read; None if its segment has just been deleted. The next fetch is answered as
    that is then: from the object store, or with the new start of the log."""
    if partition.closed:
        return partition.not_leader()  # the log was deleted or is being cut: look for another
    is_deleted = found.segment is not None and found.segment.next_base <= partition.log.start_offset
    return None if is_deleted else error


def diverging(partition: Partition, epoch: int, offset: int) -> EpochEndOffset | None:
    """Where a reader has to go back to whose last epoch ended earlier than it believes; None: nowhere."""
    if epoch < 0:
        return None
    known, end_offset = partition.end_of_epoch(epoch, partition.log.end_offset)
    if known == epoch and end_offset >= offset:
        return None
    if partition.log.report.missing_offsets:
        # The follower may have messages that this disk has lost, and must not truncate them.
        raise StorageError(partition.log.offline or f"synced messages of {partition} are missing")
    return EpochEndOffset(epoch=known, end_offset=end_offset)
