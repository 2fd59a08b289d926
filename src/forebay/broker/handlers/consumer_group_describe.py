"""ConsumerGroupDescribe: state, members and assignments of groups whose assignment the broker makes."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages import consumer_group_describe as wire


async def handle(
    groups: Groups, context: RequestContext, request: wire.ConsumerGroupDescribeRequest
) -> wire.ConsumerGroupDescribeResponse:
    answers: list[wire.ConsumerGroupDescribeResponse] = await groups.ask_each(
        context,
        request.group_ids,
        lambda own: wire.ConsumerGroupDescribeRequest(
            group_ids=own, include_authorized_operations=request.include_authorized_operations
        ),
        GroupShard.consumer_group_describe,
    )
    return wire.ConsumerGroupDescribeResponse(groups=[group for answer in answers for group in answer.groups])
