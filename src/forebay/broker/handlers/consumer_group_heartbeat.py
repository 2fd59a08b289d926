"""ConsumerGroupHeartbeat: join, stay in and leave a group whose assignment the broker makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    response: ConsumerGroupHeartbeatResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.consumer_group_heartbeat
    )
    return response


ENDPOINT = Endpoint(68, 0, 1, handle)
