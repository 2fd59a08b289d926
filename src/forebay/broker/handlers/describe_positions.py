"""DescribePositions: offsets and ages by which a broker or a command computes the lag of groups."""

from __future__ import annotations

from forebay.broker.fetch.positions import Positions
from forebay.broker.net.request_context import RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.describe_positions import (
    DescribedPartition,
    DescribedTopic,
    DescribePositionsRequest,
    DescribePositionsResponse,
)


async def handle(
    positions: Positions, _context: RequestContext, request: DescribePositionsRequest
) -> DescribePositionsResponse:
    wanted = {
        (topic.name, each.partition_index): each.positions
        for topic in request.topics
        for each in topic.partitions
    }
    found = await positions.find(wanted)
    response = DescribePositionsResponse()
    for topic in request.topics:
        described = DescribedTopic(name=topic.name)
        for each in topic.partitions:
            partition = found.get((topic.name, each.partition_index))
            if partition is None:
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                answer = DescribedPartition(partition_index=each.partition_index, error_code=code)
            else:
                answer = DescribedPartition(
                    partition_index=each.partition_index,
                    start_offset=partition.start_offset,
                    end_offset=partition.end_offset,
                    timestamps=[partition.timestamps.get(position, -1) for position in each.positions],
                )
            described.partitions.append(answer)
        response.topics.append(described)
    return response
