"""EndTxn: commit or abort a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.txn import replies
from forebay.errors import KafkaError
from forebay.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    coordinator, info = broker.transactions.coordinator, context.info
    try:
        fresh = await broker.transactions.fresh_producer_id(request.transactional_id)
    except KafkaError as error:
        return replies.end_txn(error.code, context.api_version)
    response: EndTxnResponse = await coordinator.ask(
        request.transactional_id,
        request,
        info,
        lambda machine, ticket: machine.end_txn(ticket, request, fresh, info, broker.now()),
    )
    return response


ENDPOINT = Endpoint(26, 0, 5, handle)
