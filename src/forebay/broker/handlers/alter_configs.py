"""AlterConfigs: all settings of a resource at once; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.administration import attempt
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.settings import Resource, replace_configs
from forebay.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, _context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    responses = [
        await _alter(broker, item, validate_only=request.validate_only) for item in request.resources
    ]
    return AlterConfigsResponse(responses=responses)


async def _alter(
    broker: Broker, item: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    resource = Resource(type=item.resource_type, name=item.resource_name)
    configs = [(config.name, config.value) for config in item.configs]
    code, message = await attempt(
        broker, lambda image: replace_configs(image, resource, configs), validate_only=validate_only
    )
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=item.resource_type,
        resource_name=item.resource_name,
    )


ENDPOINT = Endpoint(33, 0, 2, handle)
