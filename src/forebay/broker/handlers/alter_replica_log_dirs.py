"""AlterReplicaLogDirs: a broker has one directory, and its replicas are there already."""

from __future__ import annotations

from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.partition.table import PartitionTable
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import alter_replica_log_dirs as wire

_KEPT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR)


def handle(
    partitions: PartitionTable,
    settings: LiveConfig,
    _context: RequestContext,
    request: wire.AlterReplicaLogDirsRequest,
) -> wire.AlterReplicaLogDirsResponse:
    codes: dict[str, dict[int, ErrorCode]] = {}
    directory = str(settings.current.node.data_dir.absolute())
    for wanted in request.dirs:
        known = wanted.path.rstrip("/") == directory
        for topic in wanted.topics:
            for index in topic.partitions:
                code = _move(partitions, topic.name, index) if known else ErrorCode.LOG_DIR_NOT_FOUND
                codes.setdefault(topic.name, {})[index] = code
    return wire.AlterReplicaLogDirsResponse(
        results=[
            wire.AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    wire.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in by_index.items()
                ],
            )
            for name, by_index in codes.items()
        ]
    )


def _move(partitions: PartitionTable, topic: str, index: int) -> ErrorCode:
    try:
        partitions.held(topic, index)
    except KafkaError as error:
        return error.code if error.code in _KEPT else ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE
