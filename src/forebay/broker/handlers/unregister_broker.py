"""UnregisterBroker: forget a broker that was stopped for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.settings import unregistered
from forebay.errors import KafkaError
from forebay.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, _context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        await broker.metadata.change(lambda image: unregistered(image, broker.config, request.broker_id))
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()


ENDPOINT = Endpoint(64, 0, 0, handle)
