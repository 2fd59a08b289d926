"""ListConfigResources: the names of what has, or can have, settings."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.resources import ResourceType
from forebay.errors import ErrorCode
from forebay.wire.messages import list_config_resources as wire

_TYPES_FROM = 1
"""Before this version only client metrics could be asked for."""


def handle(
    metadata: Metadata, context: RequestContext, request: wire.ListConfigResourcesRequest
) -> wire.ListConfigResourcesResponse:
    by_type = context.api_version >= _TYPES_FROM
    wanted = (request.resource_types or list(ResourceType)) if by_type else [ResourceType.CLIENT_METRICS]
    if not set(wanted) <= set(ResourceType):
        return wire.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return wire.ListConfigResourcesResponse(
        config_resources=[
            wire.ConfigResource(resource_name=name, resource_type=number)
            for number in dict.fromkeys(wanted)
            for name in _names(metadata.image, ResourceType(number))
        ]
    )


def _names(image: ClusterImage, kind: ResourceType) -> list[str]:
    match kind:
        case ResourceType.TOPIC:
            return [*image.topics, *image.views]
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in image.brokers]
        case ResourceType.GROUP:
            return list(image.group_configs)
        case ResourceType.CLIENT_METRICS:
            return []
