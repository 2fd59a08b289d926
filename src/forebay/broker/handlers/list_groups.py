"""ListGroups: every group that this broker coordinates, by state and type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


def handle(broker: Broker, _context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    coordinator = broker.groups.coordinator
    return ListGroupsResponse(
        error_code=coordinator.availability,
        groups=[
            group for shard in coordinator.ready_shards() for group in shard.machine.list_groups(request)
        ],
    )


ENDPOINT = Endpoint(16, 0, 5, handle)
