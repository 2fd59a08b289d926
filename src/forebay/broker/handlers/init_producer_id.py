"""InitProducerId: a number for each idempotent producer, an epoch for each life of a transactional one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.errors import KafkaError
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    try:
        return await _init(broker, context, request)
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)


async def _init(
    broker: Broker, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    transactional_id, info = request.transactional_id, context.info
    if transactional_id is None:
        return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)
    coordinator = broker.transactions.coordinator
    await coordinator.ensure_topic()
    fresh = await broker.transactions.fresh_producer_id(transactional_id)
    response: InitProducerIdResponse = await coordinator.ask(
        transactional_id,
        request,
        info,
        lambda machine, ticket: machine.init_producer_id(ticket, request, fresh, info, broker.now()),
    )
    return response


ENDPOINT = Endpoint(22, 0, 5, handle)
