"""SyncGroup: the leader hands in the assignment, and every member gets its own."""

from __future__ import annotations

from functools import partial

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


async def handle(groups: Groups, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    response: SyncGroupResponse = await groups.ask(context, request.group_id, request, GroupShard.sync_group)
    return response


def endpoint(groups: Groups) -> Endpoint:
    return Endpoint(14, 0, 5, partial(handle, groups))
