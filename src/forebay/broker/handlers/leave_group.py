"""LeaveGroup: members go, one or many at once."""

from __future__ import annotations

from functools import partial

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse


async def handle(groups: Groups, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    response: LeaveGroupResponse = await groups.ask(
        context, request.group_id, request, GroupShard.leave_group
    )
    return response


def endpoint(groups: Groups) -> Endpoint:
    return Endpoint(13, 0, 5, partial(handle, groups))
