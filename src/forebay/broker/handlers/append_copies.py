"""AppendCopies: another broker copies the records of a folded partition to one that is led here."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.broker.record_moves.copy_appends import CopyAppends
from forebay.errors import KafkaError
from forebay.wire.messages.append_copies import AppendCopiesRequest, AppendCopiesResponse


def handle(
    copies: CopyAppends,
    peers: Peers,
    background: Background,
    context: RequestContext,
    request: AppendCopiesRequest,
) -> Reply | AppendCopiesResponse:
    try:
        peers.check_sender(context.client_id)
    except KafkaError as error:
        return AppendCopiesResponse(error_code=error.code, error_message=error.message)
    if request.records is not None:
        request.records = memoryview(bytearray(request.records))  # the buffer that it came in is used again
    return answer_later(
        background, context.defer(pipelined=True), copies.answer(request), "appending copies of records"
    )
