"""IncrementalAlterConfigs: single settings of a resource; the others stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.administration import alter_each, carry_out
from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.broker.handlers.describe_configs import check_own_id
from forebay.broker.log_levels import alter_levels
from forebay.core.resources import ResourceType
from forebay.core.settings import Alteration, Resource, alter_configs
from forebay.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, _context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(item: AlterConfigsResource) -> None:
        await _alter(broker, item, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(
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


async def _alter(broker: Broker, item: AlterConfigsResource, *, validate_only: bool) -> None:
    resource = Resource(type=item.resource_type, name=item.resource_name)
    changes = [
        Alteration(name=config.name, op=config.config_operation, value=config.value)
        for config in item.configs
    ]
    if resource.type == ResourceType.BROKER_LOGGER:
        check_own_id(broker, resource.name)
        alter_levels(changes, validate_only=validate_only)
        return
    await carry_out(
        broker,
        lambda image: alter_configs(image, broker.config, resource, changes),
        validate_only=validate_only,
    )


ENDPOINT = Endpoint(44, 0, 1, handle)
