"""Heartbeat: a member of a classic group lives, and hears of rebalances."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    response: HeartbeatResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.heartbeat
    )
    return response


ENDPOINT = Endpoint(12, 0, 4, handle)
