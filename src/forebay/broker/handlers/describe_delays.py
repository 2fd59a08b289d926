"""DescribeDelays: the messages of a partition that wait for their time."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.delays.service import DelayService
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.core.delays.delivered_batch import SCHEDULE_ID, SCHEDULED_AT, as_record
from forebay.errors import KafkaError
from forebay.wire.messages.describe_delays import (
    DelayedHeader,
    DelayedMessage,
    DescribeDelaysRequest,
    DescribeDelaysResponse,
)
from forebay.wire.state.delay_notes import Waiting

_ADDED = frozenset((SCHEDULED_AT, SCHEDULE_ID))


def handle(
    delays: DelayService, background: Background, context: RequestContext, request: DescribeDelaysRequest
) -> Reply:
    return answer_later(background, context.defer(), _answer(delays, request), "describing delays")


async def _answer(delays: DelayService, request: DescribeDelaysRequest) -> DescribeDelaysResponse:
    try:
        return await _describe(delays, request)
    except KafkaError as error:
        return DescribeDelaysResponse(error_code=error.code, error_message=error.message)


async def _describe(delays: DelayService, request: DescribeDelaysRequest) -> DescribeDelaysResponse:
    live = delays.led(request.topic, request.partition)
    found, has_more, pending = await live.look(
        request.ids, after=(request.after_due_ms, request.after_id), limit=request.limit
    )
    return DescribeDelaysResponse(
        pending=pending,
        messages=[_message(each, request.partition, values=request.values) for each in found],
        more=has_more,
    )


def _message(waiting: Waiting, partition: int, *, values: bool) -> DelayedMessage:
    record = as_record(waiting, partition)
    return DelayedMessage(
        id=waiting.id,
        due_ms=waiting.due_ms,
        scheduled_ms=waiting.scheduled_ms,
        schedule_key=waiting.schedule_key,
        key=record.key,
        value=record.value if values else None,
        value_size=-1 if record.value is None else len(record.value),
        headers=[DelayedHeader(key=key, value=value) for key, value in record.headers if key not in _ADDED],
    )
