"""DescribeFills: how far partitions of a materialized view are filled that this broker leads."""

from __future__ import annotations

from forebay.broker.net.request_context import RequestContext
from forebay.broker.views.materializing import ViewFilling
from forebay.wire.messages.describe_fills import DescribeFillsRequest, DescribeFillsResponse, FilledPartition


def handle(
    filling: ViewFilling, _context: RequestContext, request: DescribeFillsRequest
) -> DescribeFillsResponse:
    return DescribeFillsResponse(
        partitions=[
            FilledPartition(
                partition_index=each.partition,
                position=each.position,
                reason=each.reason,
                problem=each.problem,
            )
            for each in filling.states()
            if each.topic == request.topic
        ]
    )
