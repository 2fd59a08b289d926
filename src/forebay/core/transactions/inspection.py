"""Operators' queries about transactions: plain values, which the runtime merges over all shards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forebay.core.transactions.state import State, Transaction, by_topic
from forebay.errors import ErrorCode
from forebay.wire.messages import describe_transactions, list_transactions
from forebay.wire.messages.describe_transactions import TopicData
from forebay.wire.messages.list_transactions import ListTransactionsRequest

_STATES = {state.label: state for state in State}


def unknown_states(request: ListTransactionsRequest) -> list[str]:
    """The filters that name no state."""
    return [name for name in request.state_filters if name not in _STATES]


def listed(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, now_ms: int
) -> list[list_transactions.TransactionState]:
    producer_ids, states = frozenset(request.producer_id_filters), frozenset(request.state_filters)

    def is_wanted(txn: Transaction) -> bool:
        if producer_ids and txn.producer_id not in producer_ids:
            return False
        if states and txn.state.label not in states:
            return False
        # Finished ones too, as in Kafka: the time since their start counts for all of them.
        return request.duration_filter < 0 or now_ms - txn.start_ms > request.duration_filter

    return [
        list_transactions.TransactionState(
            transactional_id=txn.transactional_id,
            producer_id=txn.producer_id,
            transaction_state=txn.state.label,
        )
        for txn in transactions
        if is_wanted(txn)
    ]


def described(
    transactions: Mapping[str, Transaction], transactional_id: str
) -> describe_transactions.TransactionState:
    txn = transactions.get(transactional_id)
    if txn is None:
        error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        return describe_transactions.TransactionState(error_code=error, transactional_id=transactional_id)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=txn.state.label,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[TopicData(topic=topic, partitions=ids) for topic, ids in by_topic(txn.partitions)],
    )
