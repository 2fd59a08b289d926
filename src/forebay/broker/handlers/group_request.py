"""JoinGroup, Heartbeat, OffsetCommit and others about one group: an operation of its shard answers."""

from __future__ import annotations

from typing import Any

from forebay.broker.coordinators.groups import Groups, Operation
from forebay.broker.net.dispatch import RequestContext
from forebay.wire.fields import Response


async def handle(
    groups: Groups, operation: Operation[Any], context: RequestContext, request: Any
) -> Response:
    response: Response = await groups.ask(context, request.group_id, request, operation)
    return response
