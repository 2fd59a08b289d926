"""ListTransactions: every transactional id that this broker coordinates, filtered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.transactions import unknown_states
from forebay.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(
    broker: Broker, _context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    coordinator = broker.transactions.coordinator
    now_ms = broker.now_ms()
    return ListTransactionsResponse(
        error_code=coordinator.availability,
        unknown_state_filters=unknown_states(request),
        transaction_states=[
            state
            for shard in coordinator.ready_shards()
            for state in shard.machine.list_transactions(request, now_ms)
        ],
    )


ENDPOINT = Endpoint(66, 0, 1, handle)
