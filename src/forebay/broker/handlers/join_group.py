"""JoinGroup: enter a classic group; answered when its next generation begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    response: JoinGroupResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.join_group
    )
    return response


ENDPOINT = Endpoint(11, 0, 9, handle)
