"""ResumeDeadLetters: load a share partition, so that its mover goes on."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.broker.shares.requests.service import ShareService
from forebay.core.shares.sessions import SessionPartition
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.resume_dead_letters import ResumeDeadLettersRequest, ResumeDeadLettersResponse


def handle(
    service: ShareService, _context: RequestContext, request: ResumeDeadLettersRequest
) -> ResumeDeadLettersResponse:
    try:
        service.shares.get(request.group_id, SessionPartition(request.topic_id, request.partition))
    except KafkaError as error:
        return ResumeDeadLettersResponse(error_code=error.code)
    return ResumeDeadLettersResponse(error_code=ErrorCode.NONE)
