"""ListTransactions: every transactional id that this broker coordinates, filtered."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.core.large_requests.answer_parts import ListedPart
from forebay.core.transactions.shard import unknown_states
from forebay.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def handle(
    transactions: Transactions, time: BrokerTime, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    coordinator = transactions.coordinator
    now_ms = time.now_ms()
    part: ListedPart | None = context.part
    only = None if part is None else part.names
    return ListTransactionsResponse(
        error_code=coordinator.availability,
        unknown_state_filters=unknown_states(request),
        transaction_states=[
            state
            for shard in coordinator.ready_shards()
            if part is None or part.shard == shard.partition.index
            for state in shard.machine.list_transactions(request, now_ms, only)
        ],
    )
