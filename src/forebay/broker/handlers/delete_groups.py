"""DeleteGroups: forget groups that have no members, and their offsets."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse


async def handle(
    groups: Groups, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    answers: list[DeleteGroupsResponse] = await groups.ask_each(
        context,
        request.groups_names,
        lambda own: DeleteGroupsRequest(groups_names=own),
        GroupShard.delete_groups,
    )
    return DeleteGroupsResponse(results=[result for answer in answers for result in answer.results])
