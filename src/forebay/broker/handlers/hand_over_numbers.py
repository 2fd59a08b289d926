"""HandOverNumbers: a closed partition is about to be removed, and tells one led here what it knows of
producers."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.broker.upkeep.sequence_handover import SequenceHandover
from forebay.wire.messages.hand_over_numbers import HandOverNumbersRequest


def handle(
    numbers: SequenceHandover,
    background: Background,
    context: RequestContext,
    request: HandOverNumbersRequest,
) -> Reply:
    return answer_later(
        background,
        context.defer(pipelined=True),
        numbers.answer(request),
        "taking over the numbers of producers",
    )
