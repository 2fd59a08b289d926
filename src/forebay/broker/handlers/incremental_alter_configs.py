"""IncrementalAlterConfigs: single settings of a resource; the others stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.administration import attempt
from forebay.broker.dispatch import Endpoint, RequestContext
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
    responses = [
        await _alter(broker, item, validate_only=request.validate_only) for item in request.resources
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(
    broker: Broker, item: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    resource = Resource(type=item.resource_type, name=item.resource_name)
    changes = [
        Alteration(name=config.name, op=config.config_operation, value=config.value)
        for config in item.configs
    ]
    code, message = await attempt(
        broker,
        lambda image: alter_configs(image, broker.config, resource, changes),
        validate_only=validate_only,
    )
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=item.resource_type,
        resource_name=item.resource_name,
    )


ENDPOINT = Endpoint(44, 0, 1, handle)
