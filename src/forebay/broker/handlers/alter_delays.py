"""AlterDelays: messages that wait for their time are cancelled, or delivered now."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.delays.service import DelayService
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.alter_delays import (
    CANCEL,
    FIRE,
    IDS_MAX,
    AlterDelaysRequest,
    AlterDelaysResponse,
    AlteredDelay,
)


def handle(
    delays: DelayService, background: Background, context: RequestContext, request: AlterDelaysRequest
) -> Reply:
    return answer_later(background, context.defer(), _answer(delays, request), "altering delays")


async def _answer(delays: DelayService, request: AlterDelaysRequest) -> AlterDelaysResponse:
    try:
        return await _alter(delays, request)
    except KafkaError as error:
        return AlterDelaysResponse(error_code=error.code, error_message=error.message)


async def _alter(delays: DelayService, request: AlterDelaysRequest) -> AlterDelaysResponse:
    if request.action not in (CANCEL, FIRE):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no action {request.action}")
    if len(request.ids) > IDS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"one request can name {IDS_MAX} messages, not {len(request.ids)}; send several",
        )
    live = delays.led(request.topic, request.partition)
    altered = await live.alter(
        request.ids, fire=request.action == FIRE, timeout_s=max(request.timeout_ms, 0) / 1000
    )
    return AlterDelaysResponse(
        results=[
            AlteredDelay(
                id=id_, error_code=ErrorCode.NONE if id_ in altered else ErrorCode.RESOURCE_NOT_FOUND
            )
            for id_ in request.ids
        ]
    )
