"""ConsumerGroupDescribe: state, members and assignments of groups whose assignment the broker makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    answers: list[ConsumerGroupDescribeResponse] = await broker.groups.ask_each(
        context,
        request.group_ids,
        lambda own: ConsumerGroupDescribeRequest(
            group_ids=own, include_authorized_operations=request.include_authorized_operations
        ),
        GroupShard.consumer_group_describe,
    )
    return ConsumerGroupDescribeResponse(groups=[group for answer in answers for group in answer.groups])


ENDPOINT = Endpoint(69, 0, 1, handle)
