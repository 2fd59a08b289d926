"""FindCoordinator: the leader of the internal partition that a group id or transactional id hashes to.

A share coordinator is asked for by share partition, and found by the group of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from forebay.broker.cluster.addresses import Addresses, Caller
from forebay.broker.cluster.failover.pending_failovers import PendingFailovers
from forebay.broker.net.request_context import RequestContext
from forebay.core.shares.coordinator.key import parse_coordinator_key
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import find_coordinator as wire

if TYPE_CHECKING:
    from forebay.broker.coordinators.groups import Groups
    from forebay.broker.coordinators.runtime import Coordinator as Runtime
    from forebay.broker.coordinators.share_coordinator import ShareStates
    from forebay.broker.coordinators.transactions import Transactions

GROUP, TRANSACTION, SHARE = range(3)
_BATCHED_FROM = 4
_SHARE_FROM = 6


class Coordinators(Protocol):
    """Makes the coordinators of a kind when they are first looked for."""

    @property
    def groups(self) -> Groups: ...
    @property
    def transactions(self) -> Transactions: ...
    @property
    def share_states(self) -> ShareStates: ...


async def handle(
    coordinators: Coordinators,
    addresses: Addresses,
    failovers: PendingFailovers,
    context: RequestContext,
    request: wire.FindCoordinatorRequest,
) -> wire.FindCoordinatorResponse:
    batched = context.api_version >= _BATCHED_FROM
    keys = request.coordinator_keys if batched else [request.key]

    async def leader(key_type: int, key: str) -> int:
        coordinator = _coordinator(coordinators, key_type, context.api_version)
        if not key and key_type != GROUP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the key of a coordinator may not be empty")
        if key_type == SHARE:
            key = parse_coordinator_key(key).group_id  # raises KafkaError if it names no share partition
        await coordinator.ensure_topic()
        if failovers.concern(lambda: [coordinator.leader_of(key)]):
            await failovers.over()
        return coordinator.leader_of(key)

    async def find(key: str) -> wire.Coordinator:
        try:
            node_id = await leader(request.key_type, key)
            host, port = _address(addresses, context.connection, node_id)
        except KafkaError as error:
            return wire.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
            )
        return wire.Coordinator(key=key, node_id=node_id, host=host, port=port)

    found = [await find(key) for key in keys]
    if batched:
        return wire.FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return wire.FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _address(addresses: Addresses, caller: Caller, node_id: int) -> tuple[str, int]:
    for known, host, port, _ in addresses.addresses_for(caller):
        if known == node_id:
            return host, port
    if node_id in addresses.hidden_from(caller):
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"broker {node_id} coordinates it, and has no listener {caller.listener.name}",
        )
    raise KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {node_id} coordinates it, but is not there; try again"
    )


def _coordinator(coordinators: Coordinators, key_type: int, version: int) -> Runtime[Any]:
    """The coordinators of a kind; raises KafkaError."""
    if key_type == GROUP:
        return coordinators.groups.coordinator
    if key_type == TRANSACTION:
        return coordinators.transactions.coordinator
    if key_type == SHARE and version >= _SHARE_FROM:
        return coordinators.share_states.coordinator
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
