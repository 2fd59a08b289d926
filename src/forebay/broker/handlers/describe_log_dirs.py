"""DescribeLogDirs: what each partition takes on this broker's disk."""

from __future__ import annotations

from collections.abc import Iterator

from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.table import PartitionTable
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.disk import Disk
from forebay.wire.messages import describe_log_dirs as wire


def handle(
    partitions: PartitionTable,
    metadata: Metadata,
    settings: LiveConfig,
    disk: Disk,
    _context: RequestContext,
    request: wire.DescribeLogDirsRequest,
) -> wire.DescribeLogDirsResponse:
    directory = settings.current.node.data_dir.absolute()
    try:
        total_bytes, usable_bytes = disk.usage(str(directory))
    except OSError:
        failed = wire.DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(directory))
        return wire.DescribeLogDirsResponse(results=[failed])
    result = wire.DescribeLogDirsResult(
        log_dir=str(directory),
        topics=[
            wire.DescribeLogDirsTopic(name=name, partitions=found)
            for name, indexes in _wanted(metadata.image, request)
            if (found := _partitions(partitions, name, indexes))
        ],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
    return wire.DescribeLogDirsResponse(results=[result])


def _wanted(image: ClusterImage, request: wire.DescribeLogDirsRequest) -> Iterator[tuple[str, list[int]]]:
    if request.topics is None:
        for topic in image.topics.values():
            yield topic.name, list(range(len(topic.partitions)))
    else:
        for wanted in request.topics:
            yield wanted.topic, list(dict.fromkeys(wanted.partitions))


def _partitions(
    partitions: PartitionTable, topic: str, indexes: list[int]
) -> list[wire.DescribeLogDirsPartition]:
    found = []
    for index in indexes:
        if partitions.is_coming((topic, index)):  # nobody has used it yet, and nobody has to for this
            found.append(wire.DescribeLogDirsPartition(partition_index=index, partition_size=0))
            continue
        try:
            partition = partitions.held(topic, index)
        except KafkaError:
            continue  # not on this broker: the answer tells only of what is here
        found.append(wire.DescribeLogDirsPartition(partition_index=index, partition_size=partition.log.size))
    return found
