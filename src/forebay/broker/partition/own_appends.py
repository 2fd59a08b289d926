"""Appends of batches that this broker makes itself: records of its coordinators, and transaction markers."""

from __future__ import annotations

from forebay.broker.partition.partition import Partition
from forebay.core.partition.batch_rules import place
from forebay.core.partition.producers import producer_admission as admission
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import BatchHeader, EndTxnMarker, build_marker, read_header


def check_own(partition: Partition, producer_id: int, producer_epoch: int) -> None:
    """Raise KafkaError unless a coordinator may write for this producer in this epoch."""
    admission.require(admission.admit_own(partition.producers.find(producer_id), producer_epoch))


def append_own(partition: Partition, batch: memoryview) -> int:
    """Queue a batch that a coordinator on this broker has made, with a producer's id or without.

    Its offset. Raises KafkaError when the producer's epoch is over or the log cannot be written.
    """
    if not partition.is_leader:
        raise partition.not_leader()
    header = read_header(batch)
    known = header.producer_id >= 0
    if known:
        check_own(partition, header.producer_id, header.producer_epoch)
    header = place(batch, header, partition.log.end_offset, partition.leader_epoch)
    partition.log.append(batch, header)
    if known:
        partition.producers.accept(header)
    return header.base_offset


def append_marker(
    partition: Partition, marker: EndTxnMarker, now_ms: int, *, bumps_epoch: bool = False
) -> BatchHeader:
    """Queue the end of a producer's transaction; the header of the control batch.

    `bumps_epoch`: the marker carries the epoch after the transaction's (transaction version 2). Raises
    KafkaError when the coordinator or the producer's epoch is no longer the one to speak.
    """
    if not partition.is_leader:
        raise partition.not_leader()
    producers, log = partition.producers, partition.log
    state = producers.find(marker.producer_id)
    admission.require(admission.admit_marker(state, marker, bumps_epoch=bumps_epoch))
    batch = memoryview(build_marker(marker, timestamp=now_ms))
    header = place(batch, read_header(batch), log.end_offset, partition.leader_epoch)
    log.append(batch, header)
    next_epoch = marker.producer_epoch if bumps_epoch else None
    partition.verifications.ended(marker.producer_id, next_epoch=next_epoch)
    producers.transactions.settle(partition.high_watermark)
    ended = producers.accept_marker(header, marker)
    if ended is not None and not ended.commit:
        log.append_aborted(
            AbortedTxn(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
        )
    if partition.delayed_messages is not None:
        first_offset = None if ended is None else ended.first_offset
        partition.delayed_messages.transaction_ended(header, marker, first_offset)
    if partition.on_marker is not None:
        partition.on_marker(marker)
    return header
