"""DescribeShareGroupOffsets: how far share groups have come, and how much they have left to do."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)


async def handle(
    groups: Groups, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    asked = {group.group_id: group for group in request.groups}
    answers: list[DescribeShareGroupOffsetsResponse] = await groups.ask_each(
        context,
        asked,
        lambda own: DescribeShareGroupOffsetsRequest(groups=[asked[group_id] for group_id in own]),
        GroupShard.describe_share_group_offsets,
    )
    return DescribeShareGroupOffsetsResponse(groups=[group for answer in answers for group in answer.groups])
