"""ListTransactions: every transactional id that this broker coordinates, filtered."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.core.transactions.shard import unknown_states
from forebay.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(
    transactions: Transactions, time: BrokerTime, _context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    coordinator = transactions.coordinator
    now_ms = time.now_ms()
    return ListTransactionsResponse(
        error_code=coordinator.availability,
        unknown_state_filters=unknown_states(request),
        transaction_states=[
            state
            for shard in coordinator.ready_shards()
            for state in shard.machine.list_transactions(request, now_ms)
        ],
    )
