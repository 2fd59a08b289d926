"""ListOffsets: offsets by meaning (earliest, latest, largest timestamp) or by time.

The latest is where the client's reading ends: the last stable offset for readers of committed messages, and
the first message that is not due where a topic delays its messages. Messages beyond that are not found by
their time either. In a view, times are those of messages that it shows.

Offsets by meaning are known at once, but for the latest of a delayed topic. That, and a search by time, may
have to read, so such a request is answered when threads have done it.

A new leader that does not know yet how far the leader before has committed refuses, as Kafka does, what may
lie beyond: the latest offset, and a message that it finds there. Nothing waits for it: clients ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from forebay.broker.partition.leader_epoch_checks import check_end_known, check_epoch, check_leader_epoch
from forebay.broker.tiers.manifests.known_manifest import known_manifest
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import list_offsets as wire

if TYPE_CHECKING:
    from forebay.broker.fetch.offsets_by_time import OffsetsByTime
    from forebay.broker.fetch.topic_delays import TopicDelays
    from forebay.broker.fetch.view_offsets import ViewOffsets
    from forebay.broker.net.request_context import RequestContext
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.tiers.remote_offsets import RemoteOffsets
    from forebay.storage.log.timestamp_search import TimestampOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

READ_COMMITTED = 1

_NOT_FOUND = (-1, -1)
_KNOWS_NOT_AVAILABLE = 5
"""The first version whose clients know OFFSET_NOT_AVAILABLE."""


def handle(
    partitions: PartitionTable,
    offsets_by_time: OffsetsByTime,
    views: Callable[[], ViewOffsets],
    delays: TopicDelays,
    remote: Callable[[], RemoteOffsets | None],
    context: RequestContext,
    request: wire.ListOffsetsRequest,
) -> wire.ListOffsetsResponse | Coroutine[None, None, wire.ListOffsetsResponse]:
    must_read = any(
        _is_time(wanted.timestamp) or _is_delayed(partitions, topic.name, wanted)
        for topic in request.topics
        for wanted in topic.partitions
    )
    if must_read:
        searches = _Searches(partitions, offsets_by_time, views, delays, remote, context, request)
        return _search_all(searches, context, request)
    return _response(context, request, _look_up_all(partitions, request))


def _look_up_all(
    partitions: PartitionTable, request: wire.ListOffsetsRequest
) -> Iterator[wire.ListOffsetsPartitionResponse]:
    for topic in request.topics:
        for wanted in topic.partitions:
            yield _look_up(partitions, request, topic.name, wanted)


async def _search_all(
    searches: _Searches, context: RequestContext, request: wire.ListOffsetsRequest
) -> wire.ListOffsetsResponse:
    answers = [
        await searches.answer(topic.name, wanted) for topic in request.topics for wanted in topic.partitions
    ]
    return _response(context, request, iter(answers))


def _response(
    context: RequestContext,
    request: wire.ListOffsetsRequest,
    answers: Iterator[wire.ListOffsetsPartitionResponse],
) -> wire.ListOffsetsResponse:
    if context.api_version < _KNOWS_NOT_AVAILABLE:
        answers = map(_for_older, answers)
    return wire.ListOffsetsResponse(
        topics=[
            wire.ListOffsetsTopicResponse(
                name=topic.name, partitions=list(islice(answers, len(topic.partitions)))
            )
            for topic in request.topics
        ]
    )


def _look_up(
    partitions: PartitionTable,
    request: wire.ListOffsetsRequest,
    topic: str,
    wanted: wire.ListOffsetsPartition,
) -> wire.ListOffsetsPartitionResponse:
    try:
        unused = _of_unused(partitions, topic, wanted)
        if unused is not None:
            return unused
        partition, end_offset = _find_partition(partitions, request, topic, wanted)
        if wanted.timestamp == LATEST:
            check_end_known(partition)
        offset = _by_meaning(partition, wanted.timestamp, end_offset)
        return _answer(wanted, partition, (-1, offset))
    except KafkaError as error:
        return _refusal(wanted, error)


class _Searches:
    """The searches of one request."""

    def __init__(
        self,
        partitions: PartitionTable,
        offsets_by_time: OffsetsByTime,
        views: Callable[[], ViewOffsets],
        delays: TopicDelays,
        remote: Callable[[], RemoteOffsets | None],
        context: RequestContext,
        request: wire.ListOffsetsRequest,
    ) -> None:
        self._partitions = partitions
        self._offsets_by_time = offsets_by_time
        self._views = views
        self._delays = delays
        self._remote = remote
        self._request = request
        self._connection = context.connection
        self._deadlines: dict[str, float] = {}
        """When each view has been searched for long enough."""
        self._last_deadline: float | None = None
        """When all of them have."""

    async def answer(
        self, topic: str, wanted: wire.ListOffsetsPartition
    ) -> wire.ListOffsetsPartitionResponse:
        partitions, request = self._partitions, self._request
        try:
            unused = _of_unused(partitions, topic, wanted)
            if unused is not None:
                return unused
            partition, _ = _find_partition(partitions, request, topic, wanted)
            await self._delays.find(partition)
            if not _is_time(wanted.timestamp):
                return _look_up(partitions, request, topic, wanted)
            try:
                partition, end_offset = _find_partition(partitions, request, topic, wanted)
                if partitions.source_of(topic) == topic:
                    found = await self._in_topic(partition, wanted.timestamp)
                else:
                    found = await self._in_view(topic, partition, wanted.timestamp, end_offset)
            finally:
                # The partition may be deleted by now, or led by another broker: that error comes first.
                partition, end_offset = _find_partition(partitions, request, topic, wanted)
            if found and found[1] >= end_offset:
                check_end_known(partition)  # the leader before may have shown it to consumers
                found = None
            return _answer(wanted, partition, found or _NOT_FOUND)
        except KafkaError as error:
            return _refusal(wanted, error)

    async def _in_topic(self, partition: Partition, timestamp: int) -> TimestampOffset | None:
        if timestamp == MAX_TIMESTAMP:
            return await self._largest(partition)
        remote = self._remote() if partition.remote is not None else None
        if remote is not None:
            found = await remote.first_from(partition, timestamp)
            if found is not None:
                return found
        return await self._offsets_by_time.first_from(partition.log, timestamp)

    async def _largest(self, partition: Partition) -> TimestampOffset | None:
        found = await self._offsets_by_time.largest(partition.log)
        remote = self._remote() if partition.remote is not None else None
        if remote is None:
            return found
        manifest = known_manifest(partition)
        oldest = -1 if manifest is None else max((s.max_timestamp for s in manifest.segments), default=-1)
        if oldest < 0 or (found is not None and found[0] > oldest):
            return found
        return await remote.first_from(partition, oldest) or found

    async def _in_view(
        self, topic: str, partition: Partition, timestamp: int, end_offset: int
    ) -> TimestampOffset | None:
        """Of messages that the view shows: times of others are none of its readers' business."""
        views = self._views()
        view = views.view(topic)
        assert view is not None, "a topic with another source is a view"
        limits = views.limits(self._connection, end_offset, self._deadline(views, topic))
        if timestamp == MAX_TIMESTAMP:
            return await views.largest(view, partition, limits)
        found = await self._in_topic(partition, timestamp)
        if found is None:
            return None
        return await views.first_from(view, partition, timestamp, found[1], limits)

    def _deadline(self, views: ViewOffsets, topic: str) -> float:
        """Each view has its own: one that takes long does not take the time of those behind it."""
        if self._last_deadline is None:
            self._last_deadline = views.last_deadline()
        if topic not in self._deadlines:
            self._deadlines[topic] = min(views.deadline(), self._last_deadline)
        return self._deadlines[topic]


def _find_partition(
    partitions: PartitionTable,
    request: wire.ListOffsetsRequest,
    topic: str,
    wanted: wire.ListOffsetsPartition,
) -> tuple[Partition, int]:
    """A partition that is led here for certain, and where the client's reading ends."""
    partition = partitions.get_with_lease(partitions.source_of(topic), wanted.partition_index)
    check_leader_epoch(partition, wanted.current_leader_epoch)
    return partition, partition.readable_end(committed=request.isolation_level == READ_COMMITTED)


def _of_unused(
    partitions: PartitionTable, topic: str, wanted: wire.ListOffsetsPartition
) -> wire.ListOffsetsPartitionResponse | None:
    """The answer for a partition that nobody has used yet. It is not opened for it: that takes memory, and
    this request takes no more than Describe."""
    epoch = partitions.unused_epoch(partitions.source_of(topic), wanted.partition_index)
    if epoch is None:
        return None
    check_epoch(epoch, wanted.current_leader_epoch)
    if wanted.timestamp not in (LATEST, EARLIEST, EARLIEST_LOCAL):
        if wanted.timestamp < EARLIEST_PENDING_UPLOAD:
            raise _without_meaning(wanted.timestamp)
        epoch, offset = -1, -1
    else:
        offset = 0
    return wire.ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=-1, offset=offset, leader_epoch=epoch
    )


def _without_meaning(timestamp: int) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning here")


def _for_older(answer: wire.ListOffsetsPartitionResponse) -> wire.ListOffsetsPartitionResponse:
    """As Kafka says it to clients that do not know the error: try again."""
    if answer.error_code == ErrorCode.OFFSET_NOT_AVAILABLE:
        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    return answer


def _is_delayed(partitions: PartitionTable, topic: str, wanted: wire.ListOffsetsPartition) -> bool:
    partition = partitions.usable.get((partitions.source_of(topic), wanted.partition_index))
    return partition is not None and partition.topic_delay is not None


def _is_time(timestamp: int) -> bool:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


def _by_meaning(partition: Partition, timestamp: int, end_offset: int) -> int:
    if timestamp == LATEST:
        return end_offset
    if timestamp == EARLIEST_LOCAL or (timestamp == EARLIEST and partition.remote is None):
        return partition.log.start_offset
    if timestamp in (EARLIEST, LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _in_tiers(partition, timestamp)
    raise _without_meaning(timestamp)


def _in_tiers(partition: Partition, timestamp: int) -> int:
    manifest = known_manifest(partition)
    if timestamp == EARLIEST:
        if partition.start_offset > partition.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "messages are deleted that may be the last ones")
        return partition.start_offset
    if partition.remote is None:
        return -1
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return partition.log.start_offset if manifest is None else manifest.next_offset
    return -1 if manifest is None or not manifest.segments else manifest.next_offset - 1


def _epoch_at(partition: Partition, offset: int) -> int:
    if partition.remote is not None and partition.remote.manifest is not None:
        segment = partition.remote.manifest.find(offset)
        if segment is not None:
            return max((epoch for epoch, start in segment.epochs if start <= offset), default=-1)
    return partition.epochs.epoch_at(offset)


def _answer(
    wanted: wire.ListOffsetsPartition, partition: Partition, found: tuple[int, int]
) -> wire.ListOffsetsPartitionResponse:
    timestamp, offset = found
    epoch = _epoch_at(partition, offset) if offset >= 0 else -1
    return wire.ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _refusal(wanted: wire.ListOffsetsPartition, error: KafkaError) -> wire.ListOffsetsPartitionResponse:
    return wire.ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=error.code, timestamp=-1, offset=-1
    )
