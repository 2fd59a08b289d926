"""JoinGroup, Heartbeat, OffsetCommit and others about one group: an operation of its shard answers."""

from __future__ import annotations

from typing import Any

from forebay.broker.coordinators.groups import Groups, Operation
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Response

_OPERATIONS: dict[int, Operation[Any]] = {
    ApiKey.OFFSET_COMMIT: GroupShard.offset_commit,
    ApiKey.JOIN_GROUP: GroupShard.join_group,
    ApiKey.HEARTBEAT: GroupShard.heartbeat,
    ApiKey.LEAVE_GROUP: GroupShard.leave_group,
    ApiKey.SYNC_GROUP: GroupShard.sync_group,
    ApiKey.OFFSET_DELETE: GroupShard.offset_delete,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: GroupShard.consumer_group_heartbeat,
    ApiKey.SHARE_GROUP_HEARTBEAT: GroupShard.share_group_heartbeat,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: GroupShard.alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: GroupShard.delete_share_group_offsets,
}


async def handle(groups: Groups, context: RequestContext, request: Any) -> Response:
    operation = _OPERATIONS[context.api_key]
    response: Response = await groups.ask(context, request.group_id, request, operation)
    return response
