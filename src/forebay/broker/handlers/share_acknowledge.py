"""ShareAcknowledge: accept, release, reject or renew records that a member of a share group holds."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.shares.requests.service import ShareService
from forebay.broker.shares.requests.share_acknowledge import ShareAcknowledge
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Response
from forebay.wire.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse


def handle(
    service: ShareService, context: RequestContext, request: ShareAcknowledgeRequest
) -> Response | Reply:
    if not service.lease.valid():
        return ShareAcknowledgeResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        seen = service.sessions.acknowledge(request, context.connection)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=error.code, error_message=error.message)
    return ShareAcknowledge(service, context, seen, is_renew_request=request.is_renew_ack).start()
