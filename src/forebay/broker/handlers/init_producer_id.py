"""InitProducerId: a number for each idempotent producer, an epoch for each life of a transactional one."""

from __future__ import annotations

from forebay.broker.broker_time import BrokerTime
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.request_context import RequestContext
from forebay.errors import KafkaError
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(
    transactions: Transactions,
    producer_ids: ProducerIds,
    time: BrokerTime,
    context: RequestContext,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse:
    context.connection.produces = True
    transactional_id, info, coordinator = request.transactional_id, context.info, transactions.coordinator
    try:
        if transactional_id is None:
            return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
        await coordinator.ensure_topic()
        fresh = await transactions.fresh_producer_id(transactional_id)
        response: InitProducerIdResponse = await coordinator.ask(
            transactional_id,
            request,
            info,
            lambda machine, ticket: machine.init_producer_id(ticket, request, fresh, info, time.now()),
        )
        return response
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
