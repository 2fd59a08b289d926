"""OffsetFetch: how far groups have come; several groups at once from version 8 on."""

from __future__ import annotations

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.request_context import RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

GROUPS_FROM = 8


async def handle(groups: Groups, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version < GROUPS_FROM:
        response: OffsetFetchResponse = await groups.ask(
            context, request.group_id, request, GroupShard.offset_fetch
        )
        return response
    wanted = {group.group_id: group for group in request.groups}
    answers: list[OffsetFetchResponse] = await groups.ask_each(
        context,
        wanted,
        lambda own: OffsetFetchRequest(
            groups=[wanted[group_id] for group_id in own], require_stable=request.require_stable
        ),
        GroupShard.offset_fetch,
    )
    return OffsetFetchResponse(groups=[group for answer in answers for group in answer.groups])
