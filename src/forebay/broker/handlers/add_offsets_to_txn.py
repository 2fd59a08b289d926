"""AddOffsetsToTxn: a group's offsets will be committed with the transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.txn import replies
from forebay.errors import KafkaError
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    coordinator, info = broker.transactions.coordinator, context.info
    try:
        await broker.groups.coordinator.ensure_topic()
    except KafkaError as error:
        return replies.add_offsets_to_txn(error.code, context.api_version)
    partition = broker.groups.coordinator.partition_for(request.group_id)
    response: AddOffsetsToTxnResponse = await coordinator.ask(
        request.transactional_id,
        request,
        info,
        lambda machine, ticket: machine.add_offsets_to_txn(ticket, request, partition, info, broker.now()),
    )
    return response


ENDPOINT = Endpoint(25, 0, 4, handle)
