"""Produce: append each partition's batch, answer when the requested acknowledgement is reached."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.broker.appends import ACKS_ALL, Appended, Unacknowledged
from forebay.broker.connection import Reply
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.produce_memo import remember
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import HEADER_SIZE, read_header
from forebay.wire.compression import Codec
from forebay.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

FORMAT_V2_FROM = 3
ZSTD_FROM = 7
TOPIC_IDS_FROM = 13
_ACKS = (ACKS_ALL, 0, 1)


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> Reply | None:
    broker.metrics.produce_requests += 1
    version = context.api_version
    topics = [
        (topic, [_append(broker, version, request, topic, data) for data in topic.partition_data])
        for topic in request.topic_data
    ]
    results = [result for _, of_topic in topics for result in of_topic]
    failures = [result for result in results if result.error_code != ErrorCode.NONE]
    broker.metrics.produce_failures += len(failures)
    if request.acks == 0:
        broker.appends.add(Unacknowledged(results, 0, _nothing))
        if failures:
            # There is no response that could carry the error; closing is how the producer learns of it.
            _log_unheard(context, failures)
            context.connection.close()
        return None
    reply = context.defer(pipelined=True)

    def settle() -> None:
        reply.resolve(ProduceResponse(responses=[_topic(topic, of_topic) for topic, of_topic in topics]))

    broker.appends.add(Unacknowledged(results, request.acks, settle))
    return reply


def _append(
    broker: Broker,
    version: int,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
) -> Appended:
    result = Appended(data.index)
    try:
        _check(version, request, data)
        if version >= TOPIC_IDS_FROM:
            partition = broker.replicas.by_id(topic.topic_id, data.index)
        else:
            partition = broker.replicas.get(topic.name, data.index)
        result.partition = partition
        if request.acks == ACKS_ALL and not partition.enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"fewer replicas of {partition} are in sync than min.insync.replicas asks for",
            )
        end_offset = partition.log.end_offset
        result.base_offset, result.log_append_time_ms = partition.append(data.records, broker.now_ms())
        result.log_start_offset = partition.log.start_offset
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    count = partition.log.end_offset - end_offset
    if count:
        assert data.records is not None
        size = len(data.records)
        broker.metrics.bytes_in += size
        broker.metrics.messages_in += count
        broker.appends.queued(partition, size)
    else:
        broker.metrics.duplicates_dropped += 1
    return result


def _check(version: int, request: ProduceRequest, data: PartitionProduceData) -> None:
    """What is wrong with a request before its batch is looked at."""
    if version < FORMAT_V2_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "only message format 2 is stored; use a client of Kafka 0.11 or later",
        )
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be all, 0 or 1, not {request.acks}")
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "this broker does not serve transactions yet")
    if version < ZSTD_FROM and data.records is not None and _codec(data.records) == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM} or later, not {version}"
        )


def _codec(records: memoryview) -> int:
    return read_header(records).codec if len(records) >= HEADER_SIZE else Codec.NONE


def _topic(topic: TopicProduceData, results: list[Appended]) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(
                index=result.index,
                error_code=result.error_code,
                error_message=result.error_message,
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
            )
            for result in results
        ],
    )


def _nothing() -> None:
    """acks=0: nobody waits."""


def _log_unheard(context: RequestContext, failures: list[Appended]) -> None:
    host, port = context.connection.peer
    log.info(
        "closing the connection of an acks=0 producer whose messages were refused",
        extra={"client": f"{host}:{port}", "reason": failures[0].error_message},
    )


ENDPOINT = Endpoint(0, 0, 13, handle, remember)
