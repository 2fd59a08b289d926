"""ListConfigResources: the names of what has, or can have, settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.resources import ResourceType
from forebay.errors import ErrorCode
from forebay.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

_TYPES_FROM = 1
"""Before this version only client metrics could be asked for."""


def handle(
    broker: Broker, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    by_type = context.api_version >= _TYPES_FROM
    wanted = (request.resource_types or list(ResourceType)) if by_type else [ResourceType.CLIENT_METRICS]
    if not set(wanted) <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=number)
            for number in dict.fromkeys(wanted)
            for name in _names(broker, ResourceType(number))
        ]
    )


def _names(broker: Broker, kind: ResourceType) -> list[str]:
    image = broker.image
    match kind:
        case ResourceType.TOPIC:
            return list(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in image.brokers]
        case ResourceType.GROUP:
            return list(image.group_configs)
        case ResourceType.CLIENT_METRICS:
            return []


ENDPOINT = Endpoint(74, 0, 1, handle)
