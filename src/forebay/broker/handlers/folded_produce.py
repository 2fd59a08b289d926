"""FoldedProduce: another broker hands over a batch that was sent for a folded partition."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.broker.handlers.produce import record_errors
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.produce.produce_host import ProduceHost
from forebay.broker.produce.request import AppendRequest
from forebay.broker.produce.transactional_request import TransactionalRequest
from forebay.broker.produce.write_cycle import Appended
from forebay.core.partition.folds.closed_partition import NOTHING_BEFORE, Before, PassOn
from forebay.errors import ErrorCode
from forebay.wire.messages.folded_produce import FoldedProduceRequest, FoldedProduceResponse
from forebay.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def handle(
    service: ProduceHost, context: RequestContext, request: FoldedProduceRequest
) -> Reply | FoldedProduceResponse | None:
    name = service.metadata.image.topic_names.get(request.topic_id)
    if name is None or request.acks == 0:
        return FoldedProduceResponse(
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="the topic is not known here, or the batch asks for no acknowledgement",
        )
    data = PartitionProduceData(index=request.index, records=request.records)
    produce = ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[TopicProduceData(name=name, topic_id=request.topic_id, partition_data=[data])],
    )
    before = Before(request.before_epoch, request.before_next_sequence)
    known = PassOn(None if before == NOTHING_BEFORE else before)
    version = request.produce_version
    if request.transactional_id is None:
        return AppendRequest(service, context, produce, _response, version=version, known=known).start()
    return TransactionalRequest(service, context, produce, _response, version=version, known=known).start()


def _response(_: ProduceRequest, results: Iterable[Appended]) -> FoldedProduceResponse:
    (result,) = results
    return FoldedProduceResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=record_errors(result),
    )
