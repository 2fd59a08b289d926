"""Under which producer id a batch is stored, if it was sent for a partition that is folded into another.

A producer numbers its batches per partition. Where batches for partitions 1 and 5 end up in one log, that log
keeps two numberings of the same producer apart by an *alias*: a producer id that says which partition the
client has named. The id of a producer is below 2**40, the partition stands above. So an alias is computed,
not stored, and every broker computes the same.

A consumer meets the alias as the producer id of a batch, of a marker and of an aborted transaction alike, and
uses it for nothing else. A batch without a producer id needs no alias.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.wire.batch import NO_PRODUCER_ID, BatchHeader, patch_producer_id

_SHIFT = 40
PRODUCER_IDS_END = 1 << _SHIFT
"""Producers get ids below it."""


class NamedProducer(NamedTuple):
    """Who has sent a batch, and for which partition."""

    producer_id: int
    partition: int


def alias_of(producer_id: int, index: int) -> int:
    """The id under which another partition keeps what a producer sends for this one.

    What is an alias already stays: it names the partition that the client has named.
    """
    if not 0 <= producer_id < PRODUCER_IDS_END:
        return producer_id
    return (index + 1) << _SHIFT | producer_id


def named_by(producer_id: int, index: int) -> NamedProducer:
    """Whom a producer id in the partition `index` stands for."""
    if producer_id < PRODUCER_IDS_END:
        return NamedProducer(producer_id, index)
    return NamedProducer(producer_id & (PRODUCER_IDS_END - 1), (producer_id >> _SHIFT) - 1)


def under_alias(batch: memoryview, header: BatchHeader, index: int) -> memoryview:
    """A copy of a client's batch for partition `index`, as another partition stores it."""
    copy = memoryview(bytearray(batch))
    alias = alias_of(header.producer_id, index)
    if header.producer_id not in (NO_PRODUCER_ID, alias):
        patch_producer_id(copy, alias)
    return copy
