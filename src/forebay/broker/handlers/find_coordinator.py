"""FindCoordinator: the leader of the internal partition that a group id or transactional id hashes to.

A share coordinator is asked for by share partition, and found by the group of that.
"""

from __future__ import annotations

from typing import Any

from forebay.broker.cluster.addresses import Addresses, Caller
from forebay.broker.cluster.pending_failovers import PendingFailovers
from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.runtime import Coordinator as Runtime
from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.dispatch import RequestContext
from forebay.core.shares.coordinator.key import parse_coordinator_key
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import find_coordinator as wire

GROUP, TRANSACTION, SHARE = range(3)
_BATCHED_FROM = 4
_SHARE_FROM = 6


async def handle(
    groups: Groups,
    transactions: Transactions,
    share_states: ShareStates,
    addresses: Addresses,
    failovers: PendingFailovers,
    context: RequestContext,
    request: wire.FindCoordinatorRequest,
) -> wire.FindCoordinatorResponse:
    batched = context.api_version >= _BATCHED_FROM
    keys = request.coordinator_keys if batched else [request.key]

    async def leader(key_type: int, key: str) -> int:
        kinds: dict[int, Runtime[Any]] = {
            GROUP: groups.coordinator,
            TRANSACTION: transactions.coordinator,
        }
        if context.api_version >= _SHARE_FROM:
            kinds[SHARE] = share_states.coordinator
        coordinator = kinds.get(key_type)
        if coordinator is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
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
