"""OffsetFetch: how far groups have come; several groups at once from version 8 on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

GROUPS_FROM = 8


async def handle(broker: Broker, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version < GROUPS_FROM:
        response: OffsetFetchResponse = await broker.groups.ask(
            context, request.group_id, request, GroupShard.offset_fetch
        )
        return response
    wanted = {group.group_id: group for group in request.groups}
    answers: list[OffsetFetchResponse] = await broker.groups.ask_each(
        context,
        wanted,
        lambda own: OffsetFetchRequest(
            groups=[wanted[group_id] for group_id in own], require_stable=request.require_stable
        ),
        GroupShard.offset_fetch,
    )
    return OffsetFetchResponse(groups=[group for answer in answers for group in answer.groups])


ENDPOINT = Endpoint(9, 1, 10, handle)
