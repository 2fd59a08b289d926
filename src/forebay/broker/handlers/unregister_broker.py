"""UnregisterBroker: forget a broker that was stopped for good."""

from __future__ import annotations

from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.config_changes import unregistered
from forebay.errors import KafkaError
from forebay.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


async def handle(
    metadata: Metadata, settings: LiveConfig, _context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    try:
        await metadata.change(lambda image: unregistered(image, settings.current, request.broker_id))
    except KafkaError as error:
        return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
    return UnregisterBrokerResponse()
