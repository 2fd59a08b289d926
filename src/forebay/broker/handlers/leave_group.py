"""LeaveGroup: members go, one or many at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    response: LeaveGroupResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.leave_group
    )
    return response


ENDPOINT = Endpoint(13, 0, 5, handle)
