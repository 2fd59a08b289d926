"""JoinGroup: enter a classic group; answered when its next generation begins."""

from __future__ import annotations

from functools import partial

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse


async def handle(groups: Groups, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    response: JoinGroupResponse = await groups.ask(context, request.group_id, request, GroupShard.join_group)
    return response


def endpoint(groups: Groups) -> Endpoint:
    return Endpoint(11, 0, 9, partial(handle, groups))
