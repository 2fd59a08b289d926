"""DescribeLogDirs: what each partition takes on this broker's disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(
    broker: Broker, _context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    directory = broker.config.node.data_dir.absolute()
    try:
        total_bytes, usable_bytes = broker.disk.usage(str(directory))
    except OSError:
        failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory))
        return DescribeLogDirsResponse(results=[failed])
    result = DescribeLogDirsResult(
        log_dir=str(directory),
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, indexes in _wanted(broker, request)
            if (partitions := _partitions(broker, name, indexes))
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _wanted(broker: Broker, request: DescribeLogDirsRequest) -> Iterator[tuple[str, list[int]]]:
    if request.topics is None:
        for topic in broker.image.topics.values():
            yield topic.name, list(range(len(topic.partitions)))
    else:
        for wanted in request.topics:
            yield wanted.topic, list(dict.fromkeys(wanted.partitions))


def _partitions(broker: Broker, topic: str, indexes: list[int]) -> list[DescribeLogDirsPartition]:
    found = []
    for index in indexes:
        try:
            partition = broker.replicas.held(topic, index)
        except KafkaError:
            continue  # not on this broker: the answer tells only of what is here
        found.append(DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size))
    return found


ENDPOINT = Endpoint(35, 1, 4, handle)
