"""DescribeGroups: state and members of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    answers: list[DescribeGroupsResponse] = await broker.groups.ask_each(
        context,
        request.groups,
        lambda own: DescribeGroupsRequest(
            groups=own, include_authorized_operations=request.include_authorized_operations
        ),
        GroupShard.describe_groups,
    )
    return DescribeGroupsResponse(groups=[group for answer in answers for group in answer.groups])


ENDPOINT = Endpoint(15, 0, 6, handle)
