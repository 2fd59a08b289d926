"""DeleteRecords: move the start of a partition forward; what lies before it is gone for every reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.waiters import release
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


def handle(broker: Broker, _context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(broker, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(broker: Broker, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        partition = broker.replicas.get_for_certain(topic, wanted.partition_index)
        high_watermark = partition.high_watermark
        offset = high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not between 0 and {high_watermark}"
            )
        partition.log.advance_start(offset)
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    release(partition)  # a fetch that waits below the new start has to hear of it
    partition.notify_followers(wake=False)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=partition.log.start_offset
    )


ENDPOINT = Endpoint(21, 0, 2, handle)
