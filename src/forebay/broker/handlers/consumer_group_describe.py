"""ConsumerGroupDescribe: state, members and assignments of groups whose assignment the broker makes."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)


async def handle(
    groups: Groups, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    answers: list[ConsumerGroupDescribeResponse] = await groups.ask_each(
        context,
        request.group_ids,
        lambda own: ConsumerGroupDescribeRequest(
            group_ids=own, include_authorized_operations=request.include_authorized_operations
        ),
        GroupShard.consumer_group_describe,
    )
    return ConsumerGroupDescribeResponse(groups=[group for answer in answers for group in answer.groups])
