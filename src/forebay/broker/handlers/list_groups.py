"""ListGroups: every group that this broker coordinates, by state and type."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.core.large_requests.answer_parts import ListedPart
from forebay.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(groups: Groups, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = groups.coordinator
    part: ListedPart | None = context.part
    only = None if part is None else part.names
    return ListGroupsResponse(
        error_code=coordinator.availability,
        groups=[
            group
            for shard in coordinator.ready_shards()
            if part is None or part.shard == shard.partition.index
            for group in shard.machine.list_groups(request, only)
        ],
    )
