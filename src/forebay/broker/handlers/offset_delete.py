"""OffsetDelete: forget how far a group has come in topics it no longer reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    response: OffsetDeleteResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.offset_delete
    )
    return response


ENDPOINT = Endpoint(47, 0, 0, handle)
