"""Decides what a materialized view stores of its source.

A batch keeps the offsets that it has in the source. So the end of the view's log is also the position in the
source: a message and the position after it are one write, and a crash cannot separate them. Offsets where
nothing matches are covered by a control batch of a type that clients ignore.

Producer ids, sequence numbers and transactions are not stored: they belong to the source. Aborted messages
are left out. The sequence number of a batch means nothing without a producer, so it holds the leader epoch of
the source in which the batch was written (plus one, and 0 for none): with it the source checks that it still
has what was copied. The delete horizon of tombstones is not copied either: it is the source's, and may have
passed. The view has its own, by its own settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from forebay.errors import ProtocolError
from forebay.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NOTED,
    TRANSACTIONAL,
    BatchHeader,
    assemble,
    build_batch,
    checked_batches,
    read_marker,
    records,
)
from forebay.wire.records import Record

UNKNOWN_EPOCH = -1

_DELTA_MAX = 2**31 - 1
_GAP_KEY = Struct(">hh").pack(0, 0x4656)
"""Version 0, and a type that only Forebay uses."""


class Aborted(NamedTuple):
    """An aborted transaction, as in a fetch response."""

    producer_id: int
    first_offset: int


class Copied(NamedTuple):
    batches: list[bytearray]
    """At the source's offsets. The caller sets the leader epoch."""
    next_offset: int
    """Where to continue: everything before it is in the batches, or not shown."""
    epoch: int
    """The leader epoch of the source's last batch before that offset."""
    max_timestamp: int
    record_count: int


def copy_batches(
    data: memoryview, first_offset: int, aborted: Iterable[Aborted], decompress_max_bytes: int
) -> Copied:
    """The batches to store for a fetched part of the source. Raises ProtocolError if a batch is damaged."""
    waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    ended: set[int] = set()
    """Producers in a transaction that was aborted."""
    copies: list[bytearray] = []
    next_offset, epoch, max_timestamp, count = first_offset, UNKNOWN_EPOCH, 0, 0
    for batch, header in checked_batches(data):
        while waiting and waiting[-1].first_offset <= header.last_offset:
            ended.add(waiting.pop().producer_id)
        next_offset = max(next_offset, header.next_offset)
        epoch = max(epoch, header.partition_leader_epoch)
        max_timestamp = max(max_timestamp, header.max_timestamp)
        if header.is_control:
            _end_transaction(batch, header, ended)
        elif not (header.is_transactional and header.producer_id in ended):
            copy, copied = _copy(batch, header, first_offset, decompress_max_bytes)
            copies += copy
            count += copied
    return Copied(copies, next_offset, epoch, max_timestamp, count)


def _end_transaction(batch: memoryview, header: BatchHeader, ended: set[int]) -> None:
    if header.is_transactional and header.record_count:
        marker = read_marker(batch)
        if marker is not None and not marker.commit:
            ended.discard(marker.producer_id)


def _copy(
    batch: memoryview, header: BatchHeader, first_offset: int, max_bytes: int
) -> tuple[list[bytearray], int]:
    """The batch as it is stored, if it has records from this offset on; and their number."""
    if not header.record_count or header.last_offset < first_offset:
        return [], 0
    if header.base_offset < first_offset:
        return _cut(batch, header, first_offset, max_bytes)
    stored = header._replace(
        attributes=header.attributes & ~(TRANSACTIONAL | NOTED | DELETE_HORIZON),
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=_number_of(header.partition_leader_epoch),
    )
    return [assemble(stored, bytes(batch[HEADER_SIZE:]))], header.record_count


def _cut(
    batch: memoryview, header: BatchHeader, first_offset: int, max_bytes: int
) -> tuple[list[bytearray], int]:
    """A batch that begins too early, without the first records, which the source has deleted."""
    try:
        kept = [record for record in records(batch, max_bytes) if record.offset >= first_offset]
    except ProtocolError:
        return [], 0  # its records are malformed: a view that has to read them does not show them either
    if not kept:
        return [], 0
    made = build_batch(
        kept,
        codec=header.codec,
        base_offset=first_offset,
        base_sequence=_number_of(header.partition_leader_epoch),
        attributes=header.attributes & LOG_APPEND_TIME,
    )
    return [made], len(kept)


def gap_batch(first_offset: int, next_offset: int, *, epoch: int, timestamp: int) -> bytearray:
    """A batch for offsets at which nothing is shown: no client takes it for a message."""
    last_offset = next_offset - 1
    return build_batch(
        [Record(last_offset, max(timestamp, 0), _GAP_KEY, b"")],
        base_offset=max(first_offset, last_offset - _DELTA_MAX),
        base_sequence=_number_of(epoch),
        attributes=CONTROL,
    )


def source_epoch(header: BatchHeader) -> int:
    """The leader epoch of the source in a stored batch."""
    return max(header.base_sequence - 1, UNKNOWN_EPOCH)


def _number_of(epoch: int) -> int:
    return max(epoch, UNKNOWN_EPOCH) + 1
