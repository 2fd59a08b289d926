"""EndTxn: commit or abort a transaction."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.core.transactions import replies
from forebay.errors import KafkaError
from forebay.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


async def handle(
    transactions: Transactions, time: BrokerTime, context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    coordinator, info = transactions.coordinator, context.info
    try:
        fresh = await transactions.fresh_producer_id(request.transactional_id)
    except KafkaError as error:
        return replies.end_txn(error.code, context.api_version)
    response: EndTxnResponse = await coordinator.ask(
        request.transactional_id,
        request,
        info,
        lambda machine, ticket: machine.end_txn(ticket, request, fresh, info, time.now()),
    )
    return response
