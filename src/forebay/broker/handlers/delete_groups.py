"""DeleteGroups: forget groups that have no members, and their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    answers: list[DeleteGroupsResponse] = await broker.groups.ask_each(
        context,
        request.groups_names,
        lambda own: DeleteGroupsRequest(groups_names=own),
        GroupShard.delete_groups,
    )
    return DeleteGroupsResponse(results=[result for answer in answers for result in answer.results])


ENDPOINT = Endpoint(42, 0, 2, handle)
