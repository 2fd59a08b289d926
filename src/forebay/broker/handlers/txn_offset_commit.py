"""TxnOffsetCommit: offsets that count from the moment their transaction commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.core.groups.shard import GroupShard
from forebay.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from forebay.broker.broker import Broker


async def handle(
    broker: Broker, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    response: TxnOffsetCommitResponse = await broker.groups.ask(
        context, request.group_id, request, GroupShard.txn_offset_commit
    )
    return response


ENDPOINT = Endpoint(28, 0, 5, handle)
