"""AlterConfigs: all settings of a resource at once; what is not named goes back to its default."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from forebay.broker.cluster.topic_changes import TopicChanges, alter_each
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.shares.dead_letters.circles import CircleCheck
from forebay.broker.tls.setting_changes import TlsSettingChanges
from forebay.config import is_unknown
from forebay.core.cluster.config_changes import Resource, replace_configs
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.resources import ResourceType
from forebay.wire.messages import alter_configs as wire

log = logging.getLogger(__name__)


async def handle(
    topic_changes: TopicChanges,
    settings: LiveConfig,
    circles: CircleCheck,
    tls_changes: TlsSettingChanges,
    _context: RequestContext,
    request: wire.AlterConfigsRequest,
) -> wire.AlterConfigsResponse:
    async def alter(item: wire.AlterConfigsResource) -> None:
        resource = Resource(type=item.resource_type, name=item.resource_name)
        configs = [(config.name, config.value) for config in item.configs]
        await circles.check(resource, configs)

        def plan(image: ClusterImage) -> list[Change]:
            return replace_configs(image, settings.current, resource, configs)

        only = request.validate_only
        store = partial(topic_changes.carry_out, plan, validate_only=only)
        await tls_changes.carry_out(resource, plan, store, validate_only=only)
        if not only:
            warn_of_unknown(resource, [name for name, _ in configs])

    return wire.AlterConfigsResponse(
        responses=await alter_each(request.resources, alter, wire.AlterConfigsResourceResponse)
    )


def warn_of_unknown(resource: Resource, names: Iterable[str]) -> None:
    """Kafka keeps such settings for plugins. Here they may be mistakes."""
    if resource.type == ResourceType.BROKER:
        for name in filter(is_unknown, names):
            log.warning("no broker knows the setting %s: it is kept, and has no effect", name)
