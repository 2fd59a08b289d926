"""AddOffsetsToTxn: a group's offsets will be committed with the transaction."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.core.transactions import replies
from forebay.errors import KafkaError
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


async def handle(
    groups: Groups,
    transactions: Transactions,
    time: BrokerTime,
    context: RequestContext,
    request: AddOffsetsToTxnRequest,
) -> AddOffsetsToTxnResponse:
    coordinator, info = transactions.coordinator, context.info
    try:
        await groups.coordinator.ensure_topic()
    except KafkaError as error:
        return replies.add_offsets_to_txn(error.code, context.api_version)
    partition = groups.coordinator.partition_for(request.group_id)
    response: AddOffsetsToTxnResponse = await coordinator.ask(
        request.transactional_id,
        request,
        info,
        lambda machine, ticket: machine.add_offsets_to_txn(ticket, request, partition, info, time.now()),
    )
    return response
