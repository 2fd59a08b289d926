"""Under which producer id a batch is stored, if it was sent for a partition that is folded into another.

A producer numbers its batches per partition. Where batches for partitions 1 and 5 end up in one log, that log
keeps two numberings of the same producer apart by an *alias*: a producer id that says which partition the
client has named, and by which fold of it the batch has come (its generation). The id of a producer is below
2**40; the partition stands above, and above that the generation. So an alias is computed, not stored, and
every broker computes the same.

A partition may be folded, take messages again, and be folded again. Then the other partition still knows how
far the producer was the first time. That is under another alias, so it is not taken for the newest.

A consumer meets the alias as the producer id of a batch, of a marker and of an aborted transaction alike, and
uses it for nothing else. A batch without a producer id needs no alias.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.wire.batch import NO_PRODUCER_ID, BatchHeader, patch_producer_id

_SHIFT = 40
_PARTITION_BITS = 14
_GENERATION_SHIFT = _SHIFT + _PARTITION_BITS
PRODUCER_IDS_END = 1 << _SHIFT
"""Producers get ids below it."""


class NamedProducer(NamedTuple):
    """Who has sent a batch, for which partition, and by which fold it has come."""

    producer_id: int
    partition: int
    generation: int | None = None
    """None: by none, the producer has named the partition that has the batch."""


def alias_of(producer_id: int, index: int, generation: int | None) -> int:
    """The id under which a partition keeps what a producer sends for this one, if a fold leads there.

    Without a generation no fold does, and it is the producer's own id. What is an alias already goes on
    naming the partition that the client has named.
    """
    named = named_by(producer_id, index)
    if producer_id < 0 or generation is None:
        return named.producer_id
    above = generation << _PARTITION_BITS | (named.partition + 1)
    return above << _SHIFT | named.producer_id


def named_by(producer_id: int, index: int) -> NamedProducer:
    """Whom a producer id in the partition `index` stands for."""
    if producer_id < PRODUCER_IDS_END:
        return NamedProducer(producer_id, index)
    above = producer_id >> _SHIFT
    return NamedProducer(
        producer_id & (PRODUCER_IDS_END - 1),
        (above & ((1 << _PARTITION_BITS) - 1)) - 1,
        producer_id >> _GENERATION_SHIFT,
    )


def under_alias(batch: memoryview, header: BatchHeader, alias: int) -> memoryview:
    """A copy of a client's batch, as another partition stores it."""
    copy = memoryview(bytearray(batch))
    if header.producer_id not in (NO_PRODUCER_ID, alias):
        patch_producer_id(copy, alias)
    return copy
