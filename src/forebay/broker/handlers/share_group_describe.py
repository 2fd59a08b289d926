"""ShareGroupDescribe: state, members and assignments of share groups."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse


async def handle(
    groups: Groups, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    answers: list[ShareGroupDescribeResponse] = await groups.ask_each(
        context,
        request.group_ids,
        lambda own: ShareGroupDescribeRequest(
            group_ids=own, include_authorized_operations=request.include_authorized_operations
        ),
        GroupShard.share_group_describe,
    )
    return ShareGroupDescribeResponse(groups=[group for answer in answers for group in answer.groups])
