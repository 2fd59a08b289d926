"""IncrementalAlterConfigs: single settings of a resource; the others stay as they are."""

from __future__ import annotations

from functools import partial

from forebay.broker.cluster.topic_changes import TopicChanges, alter_each
from forebay.broker.handlers.alter_configs import warn_of_unknown
from forebay.broker.handlers.describe_configs import check_own_id
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.shares.dead_letters.circles import CircleCheck
from forebay.broker.telemetry.log_levels import alter_levels
from forebay.broker.tls.setting_changes import TlsSettingChanges
from forebay.core.cluster.config_changes import Alteration, AlterOp, Resource, alter_configs
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.resources import ResourceType
from forebay.wire.messages import incremental_alter_configs as wire


async def handle(
    node_id: int,
    topic_changes: TopicChanges,
    settings: LiveConfig,
    circles: CircleCheck,
    tls_changes: TlsSettingChanges,
    _context: RequestContext,
    request: wire.IncrementalAlterConfigsRequest,
) -> wire.IncrementalAlterConfigsResponse:
    async def alter(item: wire.AlterConfigsResource) -> None:
        only = request.validate_only
        await _alter(node_id, topic_changes, settings, circles, tls_changes, item, validate_only=only)

    return wire.IncrementalAlterConfigsResponse(
        responses=await alter_each(request.resources, alter, wire.AlterConfigsResourceResponse)
    )


async def _alter(
    node_id: int,
    topic_changes: TopicChanges,
    settings: LiveConfig,
    circles: CircleCheck,
    tls_changes: TlsSettingChanges,
    item: wire.AlterConfigsResource,
    *,
    validate_only: bool,
) -> None:
    resource = Resource(type=item.resource_type, name=item.resource_name)
    changes = [
        Alteration(name=config.name, op=config.config_operation, value=config.value)
        for config in item.configs
    ]
    if resource.type == ResourceType.BROKER_LOGGER:
        check_own_id(node_id, resource.name)
        alter_levels(changes, validate_only=validate_only)
        return
    await circles.check(resource, [(each.name, each.value) for each in changes if each.op == AlterOp.SET])

    def plan(image: ClusterImage) -> list[Change]:
        return alter_configs(image, settings.current, resource, changes)

    store = partial(topic_changes.carry_out, plan, validate_only=validate_only)
    await tls_changes.carry_out(resource, plan, store, validate_only=validate_only)
    if not validate_only:
        warn_of_unknown(resource, [each.name for each in changes if each.op != AlterOp.DELETE])
