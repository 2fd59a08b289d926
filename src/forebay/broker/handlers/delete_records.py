"""DeleteRecords: move the start of a partition forward; what lies before it is gone for every reader.

It is answered when the in-sync followers have done the same: whoever leads next must not show it again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.partition import Partition
from forebay.broker.waiters import release
from forebay.core.topics import INTERNAL_TOPICS
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

HIGH_WATERMARK = -1


async def handle(
    broker: Broker, _context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    deadline_s = broker.loop.time() + max(request.timeout_ms, 0) / 1000
    results = await asyncio.gather(
        *(
            asyncio.gather(*(_delete(broker, topic.name, wanted, deadline_s) for wanted in topic.partitions))
            for topic in request.topics
        )
    )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=partitions)
            for topic, partitions in zip(request.topics, results, strict=True)
        ]
    )


async def _delete(
    broker: Broker, topic: str, wanted: DeleteRecordsPartition, deadline_s: float
) -> DeleteRecordsPartitionResult:
    try:
        partition = _start_at(broker, topic, wanted)
        low_watermark = partition.log.start_offset
        await _followed(broker, partition, low_watermark, deadline_s)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark)


def _start_at(broker: Broker, topic: str, wanted: DeleteRecordsPartition) -> Partition:
    index = wanted.partition_index
    if topic in INTERNAL_TOPICS and broker.image.partition(topic, index) is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{topic} holds the state of groups and transactions, which cannot be deleted",
        )
    partition = broker.replicas.get_for_certain(topic, index)
    if not partition.config.deletes:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{partition} is compacted only; cleanup.policy does not have delete"
        )
    high_watermark = partition.high_watermark
    offset = high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between 0 and {high_watermark}"
        )
    partition.log.advance_start(offset)
    release(partition)  # a fetch that waits below the new start has to hear of it
    partition.notify_followers()
    broker.appends.finish_soon()  # which answers the followers' fetches
    return partition


async def _followed(broker: Broker, partition: Partition, start_offset: int, deadline_s: float) -> None:
    """Wait until every in-sync follower starts there as well; raises KafkaError if not in time."""
    told: asyncio.Future[ErrorCode] = broker.loop.create_future()

    def done(code: ErrorCode) -> None:
        if not told.done():
            told.set_result(code)

    partition.deletions.expire(broker.loop.time())
    partition.deletions.wait(start_offset, deadline_s, done)
    partition.settle_deletions()
    try:
        async with asyncio.timeout_at(deadline_s):
            code = await told
    except TimeoutError:
        code = ErrorCode.REQUEST_TIMED_OUT
    if code != ErrorCode.NONE:
        raise KafkaError(code, f"not every in-sync replica of {partition} is known to have deleted it")


ENDPOINT = Endpoint(21, 0, 2, handle)
