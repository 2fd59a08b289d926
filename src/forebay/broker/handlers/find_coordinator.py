"""FindCoordinator: the leader of the internal partition that a group id or transactional id hashes to."""

from __future__ import annotations

from forebay.broker.cluster.addresses import Addresses
from forebay.broker.coordinators.groups import Groups
from forebay.broker.coordinators.transactions import Transactions
from forebay.broker.net.dispatch import RequestContext
from forebay.broker.ports import Address
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages import find_coordinator as wire

GROUP, TRANSACTION = range(2)
_BATCHED_FROM = 4


async def handle(
    groups: Groups,
    transactions: Transactions,
    addresses: Addresses,
    context: RequestContext,
    request: wire.FindCoordinatorRequest,
) -> wire.FindCoordinatorResponse:
    batched = context.api_version >= _BATCHED_FROM
    keys = request.coordinator_keys if batched else [request.key]

    async def find(key: str) -> wire.Coordinator:
        try:
            node_id = await _leader(groups, transactions, request.key_type, key)
            host, port = _address(addresses, context.connection.local, node_id)
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


async def _leader(groups: Groups, transactions: Transactions, key_type: int, key: str) -> int:
    if key_type not in (GROUP, TRANSACTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
    if not key and key_type != GROUP:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the key of a coordinator may not be empty")
    coordinator = groups.coordinator if key_type == GROUP else transactions.coordinator
    await coordinator.ensure_topic()
    return coordinator.leader_of(key)


def _address(addresses: Addresses, local: Address, node_id: int) -> tuple[str, int]:
    for known, host, port, _ in addresses.addresses_for(local):
        if known == node_id:
            return host, port
    raise KafkaError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"broker {node_id} coordinates it, but is not there; try again"
    )
