"""ListGroups: every group that this broker coordinates, by state and type."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(groups: Groups, _context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = groups.coordinator
    return ListGroupsResponse(
        error_code=coordinator.availability,
        groups=[
            group for shard in coordinator.ready_shards() for group in shard.machine.list_groups(request)
        ],
    )
