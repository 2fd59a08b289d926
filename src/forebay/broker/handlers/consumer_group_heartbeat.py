"""ConsumerGroupHeartbeat: join, stay in and leave a group whose assignment the broker makes."""

from __future__ import annotations

from functools import partial

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


async def handle(
    groups: Groups, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    response: ConsumerGroupHeartbeatResponse = await groups.ask(
        context, request.group_id, request, GroupShard.consumer_group_heartbeat
    )
    return response


def endpoint(groups: Groups) -> Endpoint:
    return Endpoint(68, 0, 1, partial(handle, groups))
