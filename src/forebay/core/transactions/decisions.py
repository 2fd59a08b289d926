"""Decisions about a transaction: pure functions from its value and a request to its next value, or an error.

An ErrorCode means that nothing changes; NONE means that the transaction is already as requested.

Two generations of clients end transactions in two ways. Older ones keep their epoch from one transaction to
the next. Since KIP-890 the end of a transaction raises the epoch, so a late message can never join the next
transaction; the response tells the client its new epoch, and a client that has missed the response asks with
the old one.

CONCURRENT_TRANSACTIONS makes a client retry: the last transaction is decided, but not all its markers are
written.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions.state import (
    EPOCH_MAX,
    NO_EPOCH,
    Event,
    Identity,
    State,
    Transaction,
    is_exhausted,
)
from forebay.errors import ErrorCode
from forebay.wire.batch import NO_PRODUCER_ID

TransactionOrError = Transaction | ErrorCode
"""The transaction after a request, or the error code that refuses it."""

EPOCH_BUMP_VERSION = 2
"""The transaction version of clients, and of fences, that raise the epoch when a transaction ends."""

PARTITIONS_BYTES_MAX = 800_000
"""A transaction's partitions make one record, which has to fit into a batch."""

_PARTITION_BYTES = 8


def unknown(transactional_id: str) -> ErrorCode:
    """The error for a transactional id that does not exist, or was deleted."""
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transactional_id else ErrorCode.INVALID_REQUEST


def create(
    transactional_id: str, producer_id: int, *, timeout_ms: int, now_ms: int
) -> Transaction | ErrorCode:
    """Create the transaction of a transactional id that is used for the first time."""
    if producer_id == NO_PRODUCER_ID:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        last_update_ms=now_ms,
    )


def initialise(
    txn: Transaction, expected: Identity | None, fresh_producer_id: int, *, timeout_ms: int, now_ms: int
) -> TransactionOrError:
    """Give the transactional id to a producer; with `expected`, only if it already owns it (KIP-360)."""
    if expected is not None and not _may_expect(txn, expected):
        return ErrorCode.PRODUCER_FENCED
    if txn.prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    # The owner missed the response that raised its epoch: of an InitProducerId, or of an EndTxn.
    repeated = expected is not None and expected == txn.predecessor
    if not repeated and expected not in (None, txn.stored):
        return ErrorCode.PRODUCER_FENCED
    if txn.state is State.ONGOING:
        return fence(txn, now_ms, owner_goes_on=False)
    if not repeated:
        bumped = _raise_epoch(txn, fresh_producer_id, owner_goes_on=expected is not None)
        if isinstance(bumped, ErrorCode):
            return bumped
        txn = bumped
    return replace(
        txn,
        state=State.EMPTY,
        partitions=frozenset(),
        start_ms=-1,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
        client_version=0,
    )


def _may_expect(txn: Transaction, expected: Identity) -> bool:
    producer_id, epoch = expected
    if producer_id in (txn.producer_id, txn.current[0]):
        return True
    return producer_id == txn.previous_producer_id and is_exhausted(epoch)


def _raise_epoch(txn: Transaction, fresh_producer_id: int, *, owner_goes_on: bool) -> TransactionOrError:
    """The next epoch at once, or a fresh producer id when they are used up."""
    last_epoch = txn.producer_epoch if owner_goes_on else NO_EPOCH
    if not txn.exhausted:
        return replace(
            txn,
            producer_epoch=txn.producer_epoch + 1,
            last_producer_epoch=last_epoch,
            previous_producer_id=NO_PRODUCER_ID,
        )
    if fresh_producer_id == NO_PRODUCER_ID:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return replace(
        txn,
        producer_id=fresh_producer_id,
        producer_epoch=0,
        last_producer_epoch=last_epoch,
        previous_producer_id=txn.producer_id,
    )


def fence(txn: Transaction, now_ms: int, *, owner_goes_on: bool) -> Transaction:
    """Abort an open transaction without its producer, whose epoch is over from now on.

    If it timed out and no other producer took the id, a client of KIP-890 may abort and continue at the new
    epoch.
    """
    assert txn.producer_epoch < EPOCH_MAX, "no client is given the last epoch"
    epoch = txn.producer_epoch + 1
    owner_goes_on = owner_goes_on and epoch < EPOCH_MAX
    return replace(
        txn,
        state=txn.after(Event.FENCE),
        producer_epoch=epoch,
        last_producer_epoch=txn.producer_epoch if owner_goes_on else NO_EPOCH,
        previous_producer_id=NO_PRODUCER_ID,
        last_update_ms=now_ms,
        client_version=EPOCH_BUMP_VERSION,
    )


def add(
    txn: Transaction, identity: Identity, partitions: Set[TopicPartition], now_ms: int
) -> TransactionOrError:
    """Make partitions part of the open transaction, or open one with them."""
    error = _check_identity(txn, identity)
    if error is not ErrorCode.NONE:
        return error
    if txn.state is State.ONGOING and partitions <= txn.partitions:
        return ErrorCode.NONE
    everything = txn.partitions | partitions
    if size_of(everything) > PARTITIONS_BYTES_MAX:
        return ErrorCode.INVALID_REQUEST
    return replace(
        txn,
        state=txn.after(Event.ADD),
        partitions=everything,
        start_ms=txn.start_ms if txn.state is State.ONGOING else now_ms,
        last_update_ms=now_ms,
        last_producer_epoch=NO_EPOCH,
        previous_producer_id=NO_PRODUCER_ID,
        client_version=0,
    )


def size_of(partitions: Set[TopicPartition]) -> int:
    """About how many bytes the partitions take in the log."""
    topics = {topic for topic, _ in partitions}
    return len(partitions) * _PARTITION_BYTES + sum(
        len(topic.encode()) + _PARTITION_BYTES for topic in topics
    )


def verify(txn: Transaction, identity: Identity, partition: TopicPartition) -> ErrorCode:
    """Check that a producer may write to a partition now, as part of its transaction."""
    error = _check_identity(txn, identity)
    if error is not ErrorCode.NONE:
        return error
    return ErrorCode.NONE if partition in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE


def _check_identity(txn: Transaction, identity: Identity) -> ErrorCode:
    if identity[0] not in (txn.producer_id, txn.current[0]):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity not in (txn.stored, txn.current) or identity[1] == EPOCH_MAX:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if txn.prepared else ErrorCode.NONE


def end(txn: Transaction, identity: Identity, now_ms: int, *, commit: bool) -> TransactionOrError:
    """End a transaction for a client that keeps its epoch."""
    if identity[0] != txn.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if identity != txn.stored:
        return ErrorCode.PRODUCER_FENCED
    if txn.state is State.ONGOING:
        return replace(
            txn,
            state=txn.after(Event.COMMIT if commit else Event.ABORT),
            last_update_ms=now_ms,
        )
    return _end_again(txn, commit)


def end_with_bump(
    txn: Transaction, identity: Identity, fresh_producer_id: int, now_ms: int, *, commit: bool
) -> TransactionOrError:
    """End a transaction for a client that gets a new epoch with it."""
    if identity == txn.predecessor and txn.state not in (State.EMPTY, State.ONGOING):
        return _end_again(txn, commit)
    error = _check_identity(txn, identity)
    if error is not ErrorCode.NONE:
        return error
    event = Event.COMMIT if commit else Event.ABORT if txn.state is State.ONGOING else Event.ABORT_NOTHING
    if not txn.allows(event):
        return ErrorCode.INVALID_TXN_STATE
    if txn.exhausted and fresh_producer_id == NO_PRODUCER_ID:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return replace(
        txn,
        state=txn.after(event),
        producer_epoch=txn.producer_epoch + 1,
        last_producer_epoch=txn.producer_epoch,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=fresh_producer_id if txn.exhausted else NO_PRODUCER_ID,
        start_ms=txn.start_ms if txn.state is State.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_version=EPOCH_BUMP_VERSION,
    )


def _end_again(txn: Transaction, commit: bool) -> ErrorCode:
    """The answer to a client that ends a transaction which has ended already."""
    ended = (
        (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
        if commit
        else (State.PREPARE_ABORT, State.COMPLETE_ABORT)
    )
    if txn.state not in ended:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if txn.prepared else ErrorCode.NONE


def complete(txn: Transaction, now_ms: int) -> Transaction:
    """The transaction after every partition has its marker."""
    done = replace(txn, state=txn.after(Event.MARKED), partitions=frozenset(), last_update_ms=now_ms)
    if txn.next_producer_id == NO_PRODUCER_ID:
        return done
    return replace(
        done,
        producer_id=txn.next_producer_id,
        producer_epoch=0,
        previous_producer_id=txn.producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )
