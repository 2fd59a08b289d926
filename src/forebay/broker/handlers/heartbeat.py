"""Heartbeat: a member of a classic group is alive, and learns of rebalances."""

from __future__ import annotations

from functools import partial

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


async def handle(groups: Groups, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    response: HeartbeatResponse = await groups.ask(context, request.group_id, request, GroupShard.heartbeat)
    return response


def endpoint(groups: Groups) -> Endpoint:
    return Endpoint(12, 0, 4, partial(handle, groups))
