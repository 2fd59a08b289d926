"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse


async def handle(
    groups: Groups, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    answers: list[DescribeGroupsResponse] = await groups.ask_each(
        context,
        request.groups,
        lambda own: DescribeGroupsRequest(
            groups=own, include_authorized_operations=request.include_authorized_operations
        ),
        GroupShard.describe_groups,
    )
    return DescribeGroupsResponse(groups=[group for answer in answers for group in answer.groups])
