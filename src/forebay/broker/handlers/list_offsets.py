"""ListOffsets: offsets by meaning (earliest, latest, largest timestamp) or by time.

The latest is where the asker's reading ends: the last stable offset for readers of committed messages.
Messages beyond that are not found by their time either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.partition import Partition
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

READ_COMMITTED = 1

_NOT_FOUND = (-1, -1)


def handle(broker: Broker, _context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    committed = request.isolation_level == READ_COMMITTED
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_partition(broker, topic.name, wanted, committed) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _partition(
    broker: Broker, topic: str, wanted: ListOffsetsPartition, committed: bool
) -> ListOffsetsPartitionResponse:
    try:
        partition = broker.replicas.get_for_certain(topic, wanted.partition_index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        partition.check_end_known()
        end_offset = partition.last_stable_offset if committed else partition.high_watermark
        timestamp, offset = _find(partition, wanted.timestamp, end_offset)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index, error_code=error.code, timestamp=-1, offset=-1
        )
    epoch = partition.epochs.epoch_at(offset) if offset >= 0 else -1
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _find(partition: Partition, timestamp: int, end_offset: int) -> tuple[int, int]:
    """The (timestamp, offset) that answers the question; offsets asked by meaning have no timestamp."""
    if timestamp == LATEST:
        return -1, end_offset
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return -1, partition.log.start_offset
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND  # there is no remote storage
    if timestamp < MAX_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning here")
    log = partition.log
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.find_timestamp(timestamp)
    return found if found is not None and found[1] < end_offset else _NOT_FOUND


ENDPOINT = Endpoint(2, 1, 11, handle)
