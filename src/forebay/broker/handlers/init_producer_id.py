"""InitProducerId: a number of its own for each idempotent producer."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(
    broker: Broker, _context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    if request.transactional_id is not None:
        # Fatal for the client, on purpose: waiting would not make transactions appear.
        return InitProducerIdResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, producer_id=-1, producer_epoch=-1
        )
    return _allocate(broker)


async def _allocate(broker: Broker) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await broker.producer_ids.next(), producer_epoch=0)


ENDPOINT = Endpoint(22, 0, 5, handle)
