"""AlterReplicaLogDirs: a broker has one directory, and its replicas are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

_KEPT = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR)


def handle(
    broker: Broker, _context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    codes: dict[str, dict[int, ErrorCode]] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            for index in topic.partitions:
                codes.setdefault(topic.name, {})[index] = _move(broker, wanted.path, topic.name, index)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in partitions.items()
                ],
            )
            for name, partitions in codes.items()
        ]
    )


def _move(broker: Broker, path: str, topic: str, index: int) -> ErrorCode:
    if path.rstrip("/") != str(broker.config.node.data_dir.absolute()):
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        broker.replicas.held(topic, index)
    except KafkaError as error:
        return error.code if error.code in _KEPT else ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE


ENDPOINT = Endpoint(34, 1, 2, handle)
