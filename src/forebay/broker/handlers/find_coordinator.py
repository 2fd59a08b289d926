"""FindCoordinator: on a single node the answer is always this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.dispatch import Endpoint, RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

GROUP, TRANSACTION = range(2)
_BATCHED_FROM = 4


async def handle(
    broker: Broker, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    host, port = broker.address_for(context.connection)
    if request.key_type == GROUP:
        await broker.groups.coordinator.ensure_topic()
    elif request.key_type == TRANSACTION:
        await broker.transactions.coordinator.ensure_topic()
    if context.api_version < _BATCHED_FROM:
        error, message = _check(request.key_type, request.key)
        known = error == ErrorCode.NONE
        return FindCoordinatorResponse(
            error_code=error,
            error_message=message,
            node_id=broker.node_id if known else -1,
            host=host if known else "",
            port=port if known else -1,
        )
    return FindCoordinatorResponse(
        coordinators=[
            _coordinator(broker, key, host, port, *_check(request.key_type, key))
            for key in request.coordinator_keys
        ]
    )


def _coordinator(
    broker: Broker, key: str, host: str, port: int, error: ErrorCode, message: str | None
) -> Coordinator:
    if error != ErrorCode.NONE:
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
    return Coordinator(key=key, node_id=broker.node_id, host=host, port=port)


def _check(key_type: int, key: str) -> tuple[ErrorCode, str | None]:
    if key_type not in (GROUP, TRANSACTION):
        return ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}"
    if not key and key_type != GROUP:
        return ErrorCode.INVALID_REQUEST, "the key of a coordinator may not be empty"
    return ErrorCode.NONE, None


ENDPOINT = Endpoint(10, 0, 6, handle)
