"""Reads a partition for a share group: finds its batches, and acquires records for a member.

The headers of batches say which offsets they hold. The answer is a range of the file, from the first batch
with an acquired record to the last. Nothing is unpacked, with one exception: compaction may leave a batch
that covers any number of later offsets without records. A member would get a lock on each of them, and
clients keep a list of all. So a thread looks for the last record of a batch that may be one of these.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from forebay.broker.partition.partition import Partition
from forebay.broker.shares.cold_headers import RETRY_MS
from forebay.broker.shares.live_share import LiveShare
from forebay.broker.tiers.missed_chunk import ChunkRange
from forebay.core.shares.partition.acquired_ranges import Acquired, Demand, LogRead
from forebay.core.shares.partition.share_partition import SharePartition
from forebay.storage.log.intact_reads import Unreadable
from forebay.storage.log.segment.batch_parts import CorruptBatch
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.storage.log.segment.txn_index import AbortedTxn
from forebay.wire.batch import CONTROL, BatchHeader
from forebay.wire.parts import FileRange
from forebay.wire.tiers.segment_object import AbortedSpan

log = logging.getLogger(__name__)

Aborted = AbortedTxn | AbortedSpan


class Found(NamedTuple):
    """The records that a member has acquired of one share partition."""

    ranges: list[Acquired]
    records: LogSlice
    write: int
    """The number of the write that must be done before they are sent."""
    hold: int
    """Number of the acquisition."""
    is_warm: bool
    """True if the records are in memory and checked. Otherwise they have to be loaded before they are
    sent."""


class _Batch(NamedTuple):
    position: int
    first: int
    last: int
    """The offset of its last record, or a later one."""
    header: BatchHeader


def acquire(share: LiveShare, member_id: str, demand: Demand, *, max_bytes: int, now_ms: int) -> Found | None:
    """Acquire records for a member; None if there are none in the next part of the log.

    If there may be some behind it, as in a stretch of aborted transactions, the line of fetches goes on in
    the next turn of the loop. Raises StorageError, also for damaged records.
    """
    machine, partition = share.machine, share.partition
    assert machine is not None
    share.follow_log()
    offset, end = machine.next_fetch_offset(), share.end_offset
    if offset is None or offset >= end:
        return None
    part, is_warm = share.headers.read(offset, max_bytes, end=end)
    if isinstance(part, Unreadable):
        _note_unreadable(share, machine, part, now_ms)
        raise part.error
    if part is None or part.range is None:
        return None
    # Read no more than fits into the window, however much a client asks for.
    records_max = min(demand.records_max, share.settings.partition_max_record_locks)
    batches, last = _batches(share, part, offset + records_max - 1)
    if last < offset:
        return None  # a thread looks for the end of the first of them
    visible = _visible(batches, offset)
    if share.settings.is_read_committed:
        visible = _without_aborted(visible, _aborted(partition, part, offset, last + 1))
    read = LogRead(offset, last, [(each.first, each.last) for each in visible])
    ranges, write, hold = machine.acquire(member_id, read, demand, now_ms=now_ms)
    share.changed()
    if not ranges:
        return None
    records = _cut(part, visible, ranges)
    partition.log.expect_read_after(records)
    return Found(ranges, records, write, hold, is_warm)


def _note_unreadable(share: LiveShare, machine: SharePartition, found: Unreadable, now_ms: int) -> None:
    """Note that these records could not be read, or are damaged. They are retried, and then given up
    alone."""
    patience_ms = _patience_ms(share, found)
    given_up = machine.unreadable(
        found.first, found.last, patience_ms=patience_ms, retry_ms=RETRY_MS, now_ms=now_ms
    )
    if given_up:
        log.error(
            "a share group gives up messages that cannot be read from the disk",
            extra={
                "group": share.key.group_id,
                "partition": str(share.partition),
                "from": found.first,
                "count": given_up,
                "reason": found.error.message,
            },
        )
    share.changed()


def _patience_ms(share: LiveShare, found: Unreadable) -> int | None:
    """The time for retries. A wrong CRC is read a second time. None if the whole disk fails: retry for
    ever."""
    if not found.is_lasting:
        return None
    return RETRY_MS if isinstance(found.error, CorruptBatch) else share.settings.unreadable_timeout_ms


def _batches(share: LiveShare, part: LogSlice, upto: int) -> tuple[list[_Batch], int]:
    """The batches of a slice up to the one with this offset, and the last offset that they cover.

    Their CRCs were checked, or this process wrote them. If the disk has changed since, no header may point
    beyond the slice: the group would skip the messages there.
    """
    batches: list[_Batch] = []
    last = part.next_offset - 1
    for position, header in share.headers.of(part):
        first = header.base_offset
        batch_last = min(first + header.last_offset_delta, last)
        last_record = batch_last
        if _may_be_widened(header):
            found = share.headers.last_record(part, position, header)
            if found is None:
                return batches, first - 1
            last_record = min(found, batch_last)
        batches.append(_Batch(position, first, last_record, header))
        if batch_last >= upto:
            return batches, batch_last
    return batches, last


def _may_be_widened(header: BatchHeader) -> bool:
    """True for a batch that compaction may have widened: no producer, and fewer records than offsets."""
    has_gaps = 0 < header.record_count <= header.last_offset_delta
    return has_gaps and header.producer_id < 0 and not header.attributes & CONTROL


def _visible(batches: list[_Batch], offset: int) -> list[_Batch]:
    """The batches with records for consumers, from an offset on: no markers."""
    return [
        each
        for each in batches
        if each.header.record_count and not each.header.attributes & CONTROL and each.last >= offset
    ]


def _aborted(partition: Partition, part: LogSlice, offset: int, end: int) -> Sequence[Aborted]:
    """The aborted transactions with messages in [offset, end)."""
    if isinstance(part.range, ChunkRange):
        return part.range.aborted
    return partition.log.aborted_transactions(offset, end) if partition.log.has_aborted else ()


def _without_aborted(batches: list[_Batch], aborted: Sequence[Aborted]) -> list[_Batch]:
    """The batches outside the aborted transactions. There may be thousands of both. The transactions of one
    producer do not overlap, so a batch can only belong to the first one that ends after it."""
    if not aborted:
        return batches
    ends: dict[int, list[int]] = {}
    begins: dict[int, list[int]] = {}
    for producer_id, first, last, _ in aborted:
        ends.setdefault(producer_id, []).append(last)
        begins.setdefault(producer_id, []).append(first)

    def is_aborted(batch: _Batch) -> bool:
        producer_id = batch.header.producer_id
        if not batch.header.is_transactional or producer_id not in ends:
            return False
        number = bisect_left(ends[producer_id], batch.first)
        return number < len(ends[producer_id]) and begins[producer_id][number] <= batch.first

    return [batch for batch in batches if not is_aborted(batch)]


def _cut(part: LogSlice, batches: list[_Batch], ranges: list[Acquired]) -> LogSlice:
    """The part of a slice from the first acquired record to the last."""
    assert part.range is not None
    first, last = ranges[0].first, ranges[-1].last
    acquired = [each for each in batches if first <= each.last and each.first <= last]
    begin, end = acquired[0].position, acquired[-1].position + acquired[-1].header.size
    next_offset = min(acquired[-1].header.next_offset, part.next_offset)
    return part._replace(range=FileRange(part.range.file, begin, end - begin), next_offset=next_offset)
