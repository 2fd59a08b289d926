"""AppendCopies: another broker copies the records of a folded partition to one that is led here."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.broker.record_moves.copy_appends import CopyAppends
from forebay.wire.messages.append_copies import AppendCopiesRequest


def handle(
    copies: CopyAppends,
    background: Background,
    context: RequestContext,
    request: AppendCopiesRequest,
) -> Reply:
    if request.records is not None:
        request.records = memoryview(bytearray(request.records))  # the buffer that it came in is used again
    return answer_later(
        background, context.defer(pipelined=True), copies.answer(request), "appending copies of records"
    )
