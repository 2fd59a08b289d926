"""MoveJournal: requests of movers on other brokers, whose journal is kept here."""

from __future__ import annotations

from forebay.broker.background import Background
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later
from forebay.broker.record_moves.journal import MoveJournal
from forebay.wire.messages.move_journal import MoveJournalRequest


def handle(
    journal: MoveJournal, background: Background, context: RequestContext, request: MoveJournalRequest
) -> Reply:
    return answer_later(
        background, context.defer(pipelined=True), journal.answer(request, context.info), "answering a mover"
    )
