"""OffsetDelete: forget how far a group has come in topics it no longer reads."""

from __future__ import annotations

from functools import partial

from forebay.broker.coordinators.groups import Groups
from forebay.broker.net.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


async def handle(
    groups: Groups, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    response: OffsetDeleteResponse = await groups.ask(
        context, request.group_id, request, GroupShard.offset_delete
    )
    return response


def endpoint(groups: Groups) -> Endpoint:
    return Endpoint(47, 0, 0, partial(handle, groups))
