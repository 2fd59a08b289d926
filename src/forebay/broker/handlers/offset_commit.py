"""OffsetCommit: remember how far a group has come."""

from __future__ import annotations

from functools import partial

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse


async def handle(
    groups: Groups, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    response: OffsetCommitResponse = await groups.ask(
        context, request.group_id, request, GroupShard.offset_commit
    )
    return response


def endpoint(groups: Groups) -> Endpoint:
    return Endpoint(8, 2, 10, partial(handle, groups))
