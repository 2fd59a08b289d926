"""DescribeTransactions: how far transactions have come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.errors import KafkaError
from forebay.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(
    broker: Broker, _context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(broker, each) for each in request.transactional_ids]
    )


def _describe(broker: Broker, transactional_id: str) -> TransactionState:
    coordinator = broker.transactions.coordinator
    try:
        machine = coordinator.at(coordinator.partition_for(transactional_id)).machine
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    return machine.describe_transactions([transactional_id])[0]


ENDPOINT = Endpoint(65, 0, 0, handle)
