"""DescribeTransactions: how far transactions have come."""

from __future__ import annotations

from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.errors import KafkaError
from forebay.wire.messages import describe_transactions as wire


def handle(
    transactions: Transactions, _context: RequestContext, request: wire.DescribeTransactionsRequest
) -> wire.DescribeTransactionsResponse:
    return wire.DescribeTransactionsResponse(
        transaction_states=[
            _describe(transactions, each) for each in dict.fromkeys(request.transactional_ids)
        ]
    )


def _describe(transactions: Transactions, transactional_id: str) -> wire.TransactionState:
    coordinator = transactions.coordinator
    try:
        machine = coordinator.at(coordinator.partition_for(transactional_id)).machine
    except KafkaError as error:
        return wire.TransactionState(transactional_id=transactional_id, error_code=error.code)
    return machine.describe_transactions([transactional_id])[0]
