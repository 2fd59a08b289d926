"""Produce: append each partition's batch, answer when the requested acknowledgement is reached."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.produce.next_leaders import with_next_leaders
from forebay.broker.produce.produce_host import ProduceHost
from forebay.broker.produce.request import AppendRequest
from forebay.broker.produce.same_header_requests import remember as remember
from forebay.broker.produce.transactional_request import TransactionalRequest
from forebay.broker.produce.write_cycle import Appended
from forebay.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)


def handle(service: ProduceHost, context: RequestContext, request: ProduceRequest) -> Reply | None:
    context.connection.produces = True
    version, encode = context.api_version, partial(_response, service, context)
    if request.transactional_id is None or request.acks == 0:
        return AppendRequest(service, context, request, encode, version=version).start()
    return TransactionalRequest(service, context, request, encode, version=version).start()


def _response(
    service: ProduceHost, context: RequestContext, request: ProduceRequest, results: Sequence[Appended]
) -> ProduceResponse:
    left = iter(results)
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[_partition_response(next(left)) for _ in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
    if any(result.error_code for result in results):
        return with_next_leaders(service, response, context.connection.listener.name)
    return response


def _partition_response(result: Appended) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=result.index,
        error_code=result.error_code,
        error_message=result.error_message,
        record_errors=record_errors(result),
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def record_errors(result: Appended) -> list[BatchIndexAndErrorMessage]:
    return [
        BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=reason)
        for number, reason in (result.bad_records or {}).items()
    ]
