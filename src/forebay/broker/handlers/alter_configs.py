"""AlterConfigs: all settings of a resource at once; what is not named goes back to its default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.administration import alter_each, carry_out
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
    async def alter(item: AlterConfigsResource) -> None:
        resource = Resource(type=item.resource_type, name=item.resource_name)
        configs = [(config.name, config.value) for config in item.configs]
        await carry_out(
            broker,
            lambda image: replace_configs(image, broker.config, resource, configs),
            validate_only=request.validate_only,
        )

    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=item.resource_type,
                resource_name=item.resource_name,
            )
            for item, code, message in await alter_each(request.resources, alter)
        ]
    )


ENDPOINT = Endpoint(33, 0, 2, handle)
