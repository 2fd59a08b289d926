"""Decides if a producer's batch may be appended to a partition: one decision for every code path.

`admit` decides about a client's batch, on the fast path and the full path; `admit_own` about a batch that a
coordinator writes for a producer; `admit_marker` about the end of a transaction. They look at the partition's
state of the producer and change nothing. A follower does not decide: it stores whatever its leader has
admitted.

A client numbers its records (sequence numbers), which distinguishes the next batch from a duplicate. The
meaning of the numbers depends on the transaction, so the transaction is checked first. A client that aborts a
transaction may have missed the response to its last batch, and then uses the same numbers, in the same epoch,
in the next transaction: librdkafka does. If numbers were checked first, such a batch would be taken for a
duplicate of the aborted one, and be acknowledged without being stored. So **a transactional batch can only
repeat a batch of its own open transaction**, one at or after the transaction's first offset.

    producer            batch           its numbers                    decision
    ------------------  --------------  -----------------------------  -------------------------------
    unknown             plain           any                            APPEND
                        transactional   any, not verified              VERIFY
                                        beyond the first verified      OUT_OF_ORDER_SEQUENCE_NUMBER
                                        others                         APPEND
    in a later epoch    any             any                            INVALID_PRODUCER_EPOCH
    in a transaction    plain           any                            INVALID_TXN_STATE
    in an earlier       any             not from 0 on                  OUT_OF_ORDER_SEQUENCE_NUMBER
      epoch             plain           from 0 on                      APPEND
                        transactional   from 0 on                      VERIFY, or APPEND when verified
    in this epoch,      plain           come next                      APPEND
      no transaction                    of one of the last batches     Repeats
                                        others                         OUT_OF_ORDER_SEQUENCE_NUMBER
                        transactional   come next                      VERIFY, or APPEND when verified
                                        behind: used before            UNKNOWN_PRODUCER_ID
                                        ahead                          OUT_OF_ORDER_SEQUENCE_NUMBER
    in this epoch,      transactional   come next                      APPEND
      in a transaction                  of one of its last batches     Repeats
                                        of a batch from before it      UNKNOWN_PRODUCER_ID
                                        others                         OUT_OF_ORDER_SEQUENCE_NUMBER

Other bytes under the same numbers: a batch of the aborted transaction arrived after the next one began, and
became part of that. Its producer does not know, and gives its own batch the same numbers. Only the checksum
shows the difference. It is not compared where it is not known, nor outside transactions, where a refusal does
not help.

VERIFY: the coordinator has to confirm that the transaction includes the partition; otherwise the transaction
would never end here. A batch that is refused anyway is not verified, so that its partition does not become
part of a transaction.

The leader's state may be older than that of a successor that it does not know of. Then a refusal that clients
take as final may be wrong (`LATER_STATE_MAY_ADMIT`), and waits until it is certain that this broker led.

UNKNOWN_PRODUCER_ID makes librdkafka and Java abort the transaction, take a new epoch and number from 0.
OUT_OF_ORDER_SEQUENCE_NUMBER would be fatal to librdkafka.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from forebay.core.partition.producers.producer_table import NO_OFFSET, ProducerState
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import TRANSACTIONAL, BatchHeader, EndTxnMarker, comes_after


class Way(Enum):
    APPEND = "it comes next"
    VERIFY = "the transaction coordinator has to be asked first"


APPEND: Final = Way.APPEND
VERIFY: Final = Way.VERIFY


class Repeats(NamedTuple):
    """The batch is already in the log; with its offset and time."""

    base_offset: int
    timestamp: int


class Refused(NamedTuple):
    code: ErrorCode
    message: str

    def error(self) -> KafkaError:
        return KafkaError(self.code, self.message)


Decision: TypeAlias = Way | Repeats | Refused

LATER_STATE_MAY_ADMIT: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Refusals of batches that may be valid where more is known of the producer. An old epoch stays old."""


def admit(state: ProducerState | None, header: BatchHeader, verified_from: int | None = None) -> Decision:
    """Decide about a client's batch; `state` is the partition's state of its producer.

    `verified_from`: the first sequence for which the coordinator was asked about this transaction, if it has
    agreed. On the hot path.
    """
    transactional = header.attributes & TRANSACTIONAL
    if state is None:
        return _admit_unknown(header, verified_from) if transactional else APPEND
    if (
        header.base_sequence == state.next_sequence
        and header.producer_epoch == state.producer_epoch
        and bool(transactional) is (state.txn_first_offset != NO_OFFSET)
    ):
        return APPEND
    if header.producer_epoch < state.producer_epoch:
        return _stale(header.producer_epoch, state)
    if not transactional and state.in_transaction:
        return Refused(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has an open transaction and sent a batch outside of it",
        )
    if header.producer_epoch > state.producer_epoch:
        return _admit_epoch(header, verified_from)
    if transactional and not state.in_transaction:
        return _admit_first(state, header, verified_from)
    return _admit_numbered(state, header)


def admit_own(state: ProducerState | None, producer_epoch: int) -> Decision:
    """Decide about a batch that a coordinator writes for a producer: it has no sequence numbers.

    The caller has made sure that the transaction includes the partition.
    """
    if state is not None and producer_epoch < state.producer_epoch:
        return _stale(producer_epoch, state)
    return APPEND


def admit_marker(state: ProducerState | None, marker: EndTxnMarker, *, bumps_epoch: bool) -> Decision:
    """Refuse a marker from a coordinator, or for an epoch of the producer, that is over.

    With `bumps_epoch` every transaction has its own epoch and its marker carries the next: a marker with the
    epoch of the open transaction is a late one, of the previous transaction.
    """
    if state is None:
        return APPEND
    late = bumps_epoch and state.in_transaction and marker.producer_epoch == state.producer_epoch
    if late or marker.producer_epoch < state.producer_epoch:
        return _stale(marker.producer_epoch, state)
    if marker.coordinator_epoch < state.coordinator_epoch:
        return Refused(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"coordinator epoch {marker.coordinator_epoch} is over, {state.coordinator_epoch} has begun",
        )
    return APPEND


def require(decision: Decision) -> None:
    """Raise KafkaError unless a batch of a coordinator may be appended."""
    if isinstance(decision, Refused):
        raise decision.error()
    assert decision is APPEND


def _admit_unknown(header: BatchHeader, verified_from: int | None) -> Decision:
    """Decide about an unknown producer. Any number may be its first, unless an earlier one failed."""
    if verified_from is None:
        return VERIFY
    if header.base_sequence > verified_from:
        return _out_of_order(header, f"{verified_from} comes first: it could not be appended before")
    return APPEND


def _admit_epoch(header: BatchHeader, verified_from: int | None) -> Decision:
    """Decide about the first batch of a new epoch."""
    if header.base_sequence != 0:
        return _out_of_order(header, f"epoch {header.producer_epoch} begins at 0: a batch before it was lost")
    return VERIFY if header.is_transactional and verified_from is None else APPEND


def _admit_first(state: ProducerState, header: BatchHeader, verified_from: int | None) -> Decision:
    """Decide about the first batch of a transaction here, in an epoch that is known."""
    if header.base_sequence == state.next_sequence:
        return VERIFY if verified_from is None else APPEND
    if comes_after(state.next_sequence, header.base_sequence):
        return _used_before(header)
    return _out_of_order(header, f"{state.next_sequence} comes next: a batch before it was lost")


def _admit_numbered(state: ProducerState, header: BatchHeader) -> Decision:
    """Decide about a batch that does not come next, by its numbers only (outside or within a transaction)."""
    batch = state.remembered(header)
    if batch is None:
        return _out_of_order(header, f"{state.next_sequence} comes next: a batch before it was lost")
    if state.in_transaction and (
        batch.base_offset < state.txn_first_offset or state.has_other_bytes(batch, header)
    ):
        return _used_before(header)
    return Repeats(batch.base_offset, batch.timestamp)


def _used_before(header: BatchHeader) -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {header.producer_id} sent sequence {header.base_sequence}, which an earlier transaction "
        f"of epoch {header.producer_epoch} has used; abort, and begin a new epoch",
    )


def _out_of_order(header: BatchHeader, expected: str) -> Refused:
    return Refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent sequence {header.base_sequence} where {expected}",
    )


def _stale(epoch: int, state: ProducerState) -> Refused:
    return Refused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {state.producer_id} is over, {state.producer_epoch} has begun: "
        "another instance took its place, or its transaction has ended",
    )
