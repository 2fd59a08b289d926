"""DeleteRecords: move the start of a partition forward; what lies before it is gone for every reader.

The response waits until the in-sync followers have done the same, so that the next leader does not show the
records again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.leader_epoch_checks import check_end_known
from forebay.broker.partition.long_polls import release
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.partition.waiting_messages import start_with_note
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import delete_records as wire

HIGH_WATERMARK = -1


async def handle(
    partitions: PartitionTable,
    metadata: Metadata,
    write_cycle: WriteCycle,
    loop: asyncio.AbstractEventLoop,
    begin_remote_at: Callable[[Partition, int], Awaitable[None]],
    _context: RequestContext,
    request: wire.DeleteRecordsRequest,
) -> wire.DeleteRecordsResponse:
    deadline_s = loop.time() + max(request.timeout_ms, 0) / 1000

    async def delete(topic: str, wanted: wire.DeleteRecordsPartition) -> wire.DeleteRecordsPartitionResult:
        try:
            partition, offset = _find(partitions, metadata.image, topic, wanted)
            if partition.remote is not None:
                # First where it survives: a later leader must not show them again.
                async with asyncio.timeout_at(deadline_s):
                    await begin_remote_at(partition, offset)
                # More may be committed by now. It stays, as it does in the object store.
                there = wire.DeleteRecordsPartition(partition_index=wanted.partition_index, offset=offset)
                partition, offset = _find(partitions, metadata.image, topic, there, at_least=offset)
            _start_at(partition, offset)
            write_cycle.finish_soon()  # which answers the followers' fetches
            low_watermark = partition.start_offset
            await _followed(loop, partition, partition.log.start_offset, deadline_s)
        except TimeoutError:
            return _result(wanted, -1, ErrorCode.REQUEST_TIMED_OUT)
        except KafkaError as error:
            return _result(wanted, -1, error.code)
        return _result(wanted, low_watermark)

    results = await asyncio.gather(
        *(
            asyncio.gather(*(delete(topic.name, wanted) for wanted in topic.partitions))
            for topic in request.topics
        )
    )
    return wire.DeleteRecordsResponse(
        topics=[
            wire.DeleteRecordsTopicResult(name=topic.name, partitions=done)
            for topic, done in zip(request.topics, results, strict=True)
        ]
    )


def _result(
    wanted: wire.DeleteRecordsPartition, low_watermark: int, code: ErrorCode = ErrorCode.NONE
) -> wire.DeleteRecordsPartitionResult:
    return wire.DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code
    )


def _find(
    partitions: PartitionTable,
    image: ClusterImage,
    topic: str,
    wanted: wire.DeleteRecordsPartition,
    *,
    at_least: int = 0,
) -> tuple[Partition, int]:
    """The partition, and the offset that it is to begin at. Raises KafkaError."""
    index = wanted.partition_index
    if topic in INTERNAL_TOPICS and image.partition(topic, index) is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} holds the state of groups and transactions, which cannot be deleted",
        )
    partition = partitions.get_with_lease(topic, index)
    if partition.config.compacted and not partition.config.deletes:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{partition} is compacted only; cleanup.policy does not have delete"
        )
    high_watermark = partition.high_watermark
    offset = high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
    if wanted.offset == HIGH_WATERMARK or offset > high_watermark:
        check_end_known(partition)  # before that, more may be committed
    if not 0 <= offset <= high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between 0 and {high_watermark}"
        )
    if partition.delayed_messages is not None:
        offset = start_with_note(partition.log, offset)
    return partition, max(offset, at_least)


def _start_at(partition: Partition, offset: int) -> None:
    partition.log.advance_start(offset)
    release(partition)  # answers fetches that wait below the new start
    partition.notify_followers()


async def _followed(
    loop: asyncio.AbstractEventLoop, partition: Partition, start_offset: int, deadline_s: float
) -> None:
    """Wait until every in-sync follower starts there as well; raises KafkaError if not in time."""
    told: asyncio.Future[ErrorCode] = loop.create_future()

    def done(code: ErrorCode) -> None:
        if not told.done():
            told.set_result(code)

    partition.deletions.expire(loop.time())
    partition.deletions.wait(start_offset, deadline_s, done)
    partition.settle_deletions()
    try:
        async with asyncio.timeout_at(deadline_s):
            code = await told
    except TimeoutError:
        code = ErrorCode.REQUEST_TIMED_OUT
    if code != ErrorCode.NONE:
        raise KafkaError(code, f"not every in-sync replica of {partition} is known to have deleted it")
