"""Sequences of producers that partitions tell each other when messages go another way: sent and stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from forebay.core.partition.batch_rules import place
from forebay.core.partition.folds.gathered import Gathered, GatheredBatch
from forebay.core.partition.producers.repeat_checksums import NO_CRC
from forebay.wire.batch import read_header
from forebay.wire.messages.folded_producers import FoldedBatch, FoldedProducer

if TYPE_CHECKING:
    from forebay.broker.partition.partition import Partition
    from forebay.broker.produce.write_cycle import WriteCycle


def to_send(gathered: Gathered) -> FoldedProducer:
    return FoldedProducer(
        producer_id=gathered.producer_id,
        producer_epoch=gathered.producer_epoch,
        next_sequence=gathered.next_sequence,
        batches=[
            FoldedBatch(
                base_sequence=batch.base_sequence,
                last_sequence=batch.last_sequence,
                timestamp=batch.timestamp,
                in_transaction=batch.in_transaction,
            )
            for batch in gathered.batches
        ],
    )


def received(producer: FoldedProducer, producer_id: int) -> Gathered:
    return Gathered(
        producer_id,
        producer.producer_epoch,
        producer.next_sequence,
        tuple(
            GatheredBatch(batch.base_sequence, batch.last_sequence, batch.timestamp, batch.in_transaction)
            for batch in producer.batches
        ),
    )


def append_seeds(write_cycle: WriteCycle, partition: Partition, batches: Iterable[bytearray]) -> None:
    """Queue batches without records that tell the numbers of producers. Raises StorageError."""
    log, producers = partition.log, partition.producers
    for batch in batches:
        view = memoryview(batch)
        header = place(view, read_header(view), log.end_offset, partition.leader_epoch)
        log.append(view, header)
        producers.accept(header._replace(crc=NO_CRC))
        write_cycle.queued(partition, header.size)
    write_cycle.finish_soon()
