"""ShareFetch: acknowledge records, and acquire others."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.shares.requests.service import ShareService
from forebay.broker.shares.requests.share_fetch import ShareFetch
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Response
from forebay.wire.messages.share_fetch import ShareFetchRequest, ShareFetchResponse


def handle(service: ShareService, context: RequestContext, request: ShareFetchRequest) -> Response | Reply:
    if not service.lease.valid():
        return ShareFetchResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        _check(request)
        seen = service.sessions.fetch(request, context.connection)
    except KafkaError as error:
        return _refuse(service, context, request, error)
    return ShareFetch(service, context, seen, request).start()


def _check(request: ShareFetchRequest) -> None:
    fetches = request.max_wait_ms or request.min_bytes or request.max_bytes or request.max_records
    if request.is_renew_ack and fetches:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a request that renews locks fetches nothing")


def _refuse(
    service: ShareService, context: RequestContext, request: ShareFetchRequest, error: KafkaError
) -> Response | Reply:
    response = ShareFetchResponse(error_code=error.code, error_message=error.message)
    if error.code != ErrorCode.SHARE_SESSION_LIMIT_REACHED or request.max_wait_ms <= 0:
        return response
    reply = context.defer()  # a client that got the answer at once would ask again at once
    service.loop.call_later(request.max_wait_ms / 1000, _resolve, reply, response)
    return reply


def _resolve(reply: Reply, response: ShareFetchResponse) -> None:
    if not reply.abandoned:
        reply.resolve(response)
