"""InitializeShareGroupState and the others of the share coordinator: the state of share partitions.

A broker that sends many of them does not wait for the answer to each: while one is being persisted, the next
are read.
"""

from __future__ import annotations

from typing import Any

from forebay.broker.background import Background
from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply, answer_later


def handle(states: ShareStates, background: Background, context: RequestContext, request: Any) -> Reply:
    work = states.answer(request, context.info)
    return answer_later(background, context.defer(pipelined=True), work, "answering about share groups")
