"""HandOverNumbers: a closed partition is about to be removed, and tells one led here what it knows of
producers."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.cluster.peers.peers import Peers
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.broker.upkeep.sequence_handover import SequenceHandover
from forebay.errors import KafkaError
from forebay.wire.messages.hand_over_numbers import HandOverNumbersRequest, HandOverNumbersResponse


def handle(
    numbers: SequenceHandover,
    peers: Peers,
    background: Background,
    context: RequestContext,
    request: HandOverNumbersRequest,
) -> Reply | HandOverNumbersResponse:
    try:
        peers.check_sender(context.client_id)
    except KafkaError as error:
        return HandOverNumbersResponse(error_code=error.code, error_message=error.message)
    return answer_later(
        background,
        context.defer(pipelined=True),
        numbers.answer(request),
        "taking over the numbers of producers",
    )
