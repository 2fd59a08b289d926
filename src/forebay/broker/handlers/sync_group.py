"""SyncGroup: the leader hands in the assignment, and every member gets its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(broker: Broker, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    response: SyncGroupResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.sync_group
    )
    return response


ENDPOINT = Endpoint(14, 0, 5, handle)
