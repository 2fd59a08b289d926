"""Sequence numbers that a partition copies from the one that took its messages while it was folded.

A partition that was folded takes messages again (`core/cluster/topics/more_partitions.py`). Meanwhile its
producers have continued, and another partition has their numbers, under aliases. That partition takes no more
of their batches, so its state of them does not change. The partition that takes over writes this state into
its own log, as batches without records: a header with the same sequence numbers for each batch that the other
remembers. Compaction leaves such batches, too. Replicas, recovery and snapshots learn the numbers from them
as from any batch, and a batch that a producer sends again is found among them.

If a batch belongs to an open transaction of the producer, so does its copy without records. The transaction
is then open in both logs, and gets a marker in each.

The marker of an earlier transaction may have reached the other partition, but not this one. If it ends the
epoch, too, it would be refused here as soon as the new epoch is known, and the transaction would never end.
So the copy waits for the marker (`awaits_marker`).

All of it may be written twice, if a leader was not able to finish it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from forebay.core.partition.folds.closed_partition import Before
from forebay.core.partition.producers.producer_table import ProducerState
from forebay.wire.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    SEQUENCE_MASK,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
)


class GatheredBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    timestamp: int
    in_transaction: bool
    """True if it belongs to an open transaction."""


class Gathered(NamedTuple):
    """The state of a producer in another partition."""

    producer_id: int
    """The producer id for this partition."""
    producer_epoch: int
    next_sequence: int
    batches: tuple[GatheredBatch, ...]
    """The last few, oldest first."""


def gathered_from(state: ProducerState, producer_id: int) -> Gathered:
    return Gathered(
        producer_id,
        state.producer_epoch,
        state.next_sequence,
        tuple(
            GatheredBatch(
                batch.base_sequence,
                batch.last_sequence,
                batch.timestamp,
                state.in_transaction and batch.base_offset >= state.txn_first_offset,
            )
            for batch in state.batches
        ),
    )


def awaits_marker(own: ProducerState | None, gathered: Gathered) -> bool:
    """True if a transaction is open here in an epoch that has ended in the other partition."""
    return own is not None and own.in_transaction and own.producer_epoch < gathered.producer_epoch


def is_news(own: ProducerState | None, gathered: Gathered) -> bool:
    """True if a partition has no batch of this producer, at most a marker.

    Then it takes over the state of a closed partition that is about to be removed. Otherwise it knows more.
    """
    if own is None:
        return True
    before = Before(gathered.producer_epoch, gathered.next_sequence)
    return not own.in_transaction and before.is_newer(own)


def seeds(own: ProducerState | None, gathered: Gathered, now_ms: int) -> list[bytearray]:
    """Batches without records that give a partition the gathered state of a producer.

    Empty if it has that state already. They have the present time. Otherwise retention could delete them at
    once, and consumers that wait at the end of the log would find that their offset is gone.
    """
    if own is not None and _is_known(own, gathered):
        return []
    return [assemble(_header(gathered, batch, now_ms), b"") for batch in _batches(gathered)]


def _is_known(own: ProducerState, gathered: Gathered) -> bool:
    if own.producer_epoch != gathered.producer_epoch:
        return own.producer_epoch > gathered.producer_epoch
    if not gathered.batches and not gathered.next_sequence:
        return True  # the other has only markers of this epoch
    known = {(batch.base_sequence, batch.last_sequence) for batch in own.batches}
    wanted = {(batch.base_sequence, batch.last_sequence) for batch in gathered.batches}
    opens = any(batch.in_transaction for batch in gathered.batches)
    return own.next_sequence == gathered.next_sequence and wanted <= known and opens <= own.in_transaction


def _batches(gathered: Gathered) -> Iterator[GatheredBatch]:
    if gathered.batches:
        yield from gathered.batches
    elif gathered.next_sequence:
        last = (gathered.next_sequence - 1) & SEQUENCE_MASK
        yield GatheredBatch(last, last, 0, in_transaction=False)
    else:
        yield GatheredBatch(NO_SEQUENCE, NO_SEQUENCE, 0, in_transaction=False)


def _header(gathered: Gathered, batch: GatheredBatch, now_ms: int) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL if batch.in_transaction else 0,
        last_offset_delta=(batch.last_sequence - batch.base_sequence) & SEQUENCE_MASK,
        base_timestamp=batch.timestamp,
        max_timestamp=max(batch.timestamp, now_ms),
        producer_id=gathered.producer_id,
        producer_epoch=gathered.producer_epoch,
        base_sequence=batch.base_sequence,
        record_count=0,
    )
