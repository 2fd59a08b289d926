"""OffsetCommit: remember how far a group has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    response: OffsetCommitResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.offset_commit
    )
    return response


ENDPOINT = Endpoint(8, 2, 10, handle)
