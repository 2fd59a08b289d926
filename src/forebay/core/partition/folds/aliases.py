"""The producer id of a batch that was sent for a folded partition and is stored in another one.

A producer numbers its batches per partition. If batches for partitions 1 and 5 are stored in one log, an
*alias* separates the two numberings of the same producer: a producer id that contains the partition named by
the client, and the fold by which the batch has come (its generation). Producer ids are below 2**40; the bits
above hold the partition, and those above that the generation. So an alias is computed, not stored, and every
broker computes the same.

A partition may be folded, take messages again, and be folded again. Then the other partition still has the
sequence numbers of the first time. They are under another alias, so they are not mistaken for the newest.

A consumer sees the alias as the producer id of a batch, of a marker and of an aborted transaction alike, and
uses it for nothing else. A batch without a producer id needs no alias.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.wire.batch import NO_PRODUCER_ID, BatchHeader, patch_producer_id

_SHIFT = 40
_PARTITION_BITS = 14
_GENERATION_SHIFT = _SHIFT + _PARTITION_BITS
PRODUCER_IDS_END = 1 << _SHIFT
"""All producer ids are below it."""


class NamedProducer(NamedTuple):
    """The producer of a batch, the partition that it has named, and the fold by which the batch has come."""

    producer_id: int
    partition: int
    generation: int | None = None
    """None without a fold: the producer has named the partition that has the batch."""


def alias_of(producer_id: int, index: int, generation: int | None) -> int:
    """The producer id for batches for partition `index` in the partition that takes them.

    Without a generation there is no fold, and it is the producer's own id. An alias of an alias keeps the
    partition that the client has named.
    """
    named = named_by(producer_id, index)
    if producer_id < 0 or generation is None:
        return named.producer_id
    above = generation << _PARTITION_BITS | (named.partition + 1)
    return above << _SHIFT | named.producer_id


def named_by(producer_id: int, index: int) -> NamedProducer:
    """The meaning of a producer id in the partition `index`."""
    if producer_id < PRODUCER_IDS_END:
        return NamedProducer(producer_id, index)
    above = producer_id >> _SHIFT
    return NamedProducer(
        producer_id & (PRODUCER_IDS_END - 1),
        (above & ((1 << _PARTITION_BITS) - 1)) - 1,
        producer_id >> _GENERATION_SHIFT,
    )


def under_alias(batch: memoryview, header: BatchHeader, alias: int) -> memoryview:
    """A copy of a client's batch with this alias as its producer id."""
    copy = memoryview(bytearray(batch))
    if header.producer_id not in (NO_PRODUCER_ID, alias):
        patch_producer_id(copy, alias)
    return copy
