"""Produce: append each partition's batch, answer when the requested acknowledgement is reached.

Requests with a transactional id may have to wait for the transaction coordinator first (`verifying`). Such a
wait is not pipelined, so that the batches behind it stay behind it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from forebay.broker.appends import ACKS_ALL, Appended, Unacknowledged
from forebay.broker.connection import Reply
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.produce_memo import remember
from forebay.broker.verifying import Admission, find_partition, verify
from forebay.core.topics import INTERNAL_TOPICS
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
_ACKS = (ACKS_ALL, 0, 1)


def handle(broker: Broker, context: RequestContext, request: ProduceRequest) -> Reply | None:
    broker.metrics.produce_requests += 1
    if request.transactional_id is None or request.acks == 0:
        return _append_all(broker, context, request)
    return _Transactional(broker, context, request).start()


class _Transactional:
    """A request that is appended when its transaction has been verified: mostly at once."""

    __slots__ = ("_broker", "_context", "_reply", "_request")

    def __init__(self, broker: Broker, context: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._reply: Reply | None = None

    def start(self) -> Reply:
        if not verify(self._broker, self._context.api_version, self._request, self._proceed):
            self._reply = self._context.defer()
        assert self._reply is not None
        return self._reply

    def _proceed(self, admission: Admission) -> None:
        late = self._reply
        self._reply = _append_all(self._broker, self._context, self._request, admission, late)
        if late is not None:
            self._broker.appends.finish_soon()


def _append_all(
    broker: Broker,
    context: RequestContext,
    request: ProduceRequest,
    admission: Admission | None = None,
    reply: Reply | None = None,
) -> Reply | None:
    version = context.api_version
    topics = [
        (topic, [_append(broker, version, request, topic, data, admission) for data in topic.partition_data])
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
    answer = reply or context.defer(pipelined=True)

    def settle() -> None:
        answer.resolve_soon(
            ProduceResponse(responses=[_topic(topic, of_topic) for topic, of_topic in topics])
        )

    broker.appends.add(Unacknowledged(results, request.acks, settle, max(request.timeout_ms, 0)))
    return answer


def _append(
    broker: Broker,
    version: int,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    admission: Admission | None,
) -> Appended:
    result = Appended(data.index)
    try:
        _check(version, request, data)
        partition = find_partition(broker, version, topic, data)
        if partition.topic in INTERNAL_TOPICS:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"only brokers write to {partition.topic}; use another topic",
            )
        guard = admission and admission.guard_for((partition.topic, partition.index))
        result.partition = partition
        if request.acks == ACKS_ALL and not partition.enough_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"fewer replicas of {partition} are in sync than min.insync.replicas asks for",
            )
        end_offset = partition.log.end_offset
        now_ms = broker.now_ms()
        result.base_offset, result.log_append_time_ms = partition.append(data.records, now_ms, guard=guard)
        result.log_start_offset = partition.log.start_offset
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    count = partition.log.end_offset - end_offset
    if count:
        assert data.records is not None
        broker.appends.queued(partition, len(data.records))
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
    if request.transactional_id is not None and request.acks == 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, "a transaction needs acknowledgements: set acks=all"
        )
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
