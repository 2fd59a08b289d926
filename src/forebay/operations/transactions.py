"""Transactions of a cluster: which there are, how long each is open, and ending one by force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forebay.errors import ErrorCode
from forebay.lazy import dataclass
from forebay.operations.client import CommandError, join_address
from forebay.operations.wire import BrokerConnections, WireConnection, check
from forebay.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from forebay.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from forebay.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from forebay.wire.messages.metadata import MetadataRequest, MetadataResponse

_ONGOING = "Ongoing"
OPEN_STATES = (_ONGOING, "PrepareCommit", "PrepareAbort")
_TRANSACTION_KEY = 1
_DESCRIBED_AT_ONCE = 500
_PASSING = (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR)
"""A transaction may have gone, or have got another coordinator, since it was listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    """-1 if none is open."""
    coordinator: int
    partitions: tuple[tuple[str, int], ...]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    def is_overdue(self, now_ms: int) -> bool:
        """True if it is open for longer than its coordinator allows: it hangs, and holds up readers."""
        return self.is_open and 0 <= self.start_ms < now_ms - self.timeout_ms


def list_transactions(connections: BrokerConnections, states: Iterable[str] = ()) -> list[Transaction]:
    """All transactions in these states, or in any; sorted by their ids. Raises CommandError."""
    wanted, found = list(states), []
    for node, connection in _brokers(connections):
        listed = connection.ask(ListTransactionsRequest(state_filters=wanted), ListTransactionsResponse)
        check(listed.error_code, None)
        ids = [each.transactional_id for each in listed.transaction_states]
        for first in range(0, len(ids), _DESCRIBED_AT_ONCE):
            request = DescribeTransactionsRequest(transactional_ids=ids[first : first + _DESCRIBED_AT_ONCE])
            described = connection.ask(request, DescribeTransactionsResponse).transaction_states
            found += [_transaction(node, each) for each in described if _is_there(each)]
    return sorted(found, key=lambda each: each.id)


def abort_transaction(connections: BrokerConnections, transactional_id: str) -> None:
    """Abort an open transaction and shut out its producer, as a new producer of the same id would."""
    request = FindCoordinatorRequest(key_type=_TRANSACTION_KEY, coordinator_keys=[transactional_id])
    (coordinator,) = connections.any().ask(request, FindCoordinatorResponse).coordinators
    check(coordinator.error_code, coordinator.error_message)
    connection = connections.at(join_address(coordinator.host, coordinator.port))
    described = connection.ask(
        DescribeTransactionsRequest(transactional_ids=[transactional_id]), DescribeTransactionsResponse
    )
    (state,) = described.transaction_states
    if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        check(state.error_code, None)
    if state.transaction_state != _ONGOING:
        raise CommandError(
            f"{transactional_id} has no open transaction: `forebay transaction list` shows all"
        )
    wanted = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=state.transaction_timeout_ms
    )
    answer = connection.ask(wanted, InitProducerIdResponse)
    # It is being aborted: whoever asks for the id again is told to wait until that is done.
    if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
        check(answer.error_code, None)


def _brokers(connections: BrokerConnections) -> Iterator[tuple[int, WireConnection]]:
    answer = connections.any().ask(MetadataRequest(topics=[]), MetadataResponse)
    for broker in answer.brokers:
        yield broker.node_id, connections.at(join_address(broker.host, broker.port))


def _is_there(state: TransactionState) -> bool:
    if state.error_code in _PASSING:
        return False
    check(state.error_code, None)
    return True


def _transaction(node: int, state: TransactionState) -> Transaction:
    return Transaction(
        id=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_ms=state.transaction_start_time_ms,
        coordinator=node,
        partitions=tuple((topic.topic, index) for topic in state.topics for index in topic.partitions),
    )
