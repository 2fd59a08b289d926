"""What a follower does with the leader's answer: append the batches as they are, or cut off what differs.

Cutting takes longer than the loop may stand still, and happens beside it (cutting.py): the partition is then
out of use when `take_over` returns.

A follower's log is a copy: offsets, epochs and bytes are the leader's. The state that the leader keeps of its
producers is rebuilt from the batches on the way in, so that the follower can take over at any moment.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.partition import Partition
from forebay.broker.producer_state import accept_batch
from forebay.broker.replication.cutting import begin_with, read_again, start_anew, truncate
from forebay.errors import ErrorCode, KafkaError, StorageError, known_code
from forebay.wire.batch import BatchHeader, crc_ok, split
from forebay.wire.messages.fetch import PartitionData

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)


def last_fetched_epoch(partition: Partition) -> int:
    """The leader epoch of the last batch here; -1 if there is none."""
    end_offset = partition.log.end_offset
    return partition.epochs.epoch_at(end_offset - 1) if end_offset > partition.log.start_offset else -1


def take_over(broker: Broker, partition: Partition, data: PartitionData) -> int:
    """Make the leader's answer the follower's; the bytes appended. Raises KafkaError when it cannot be."""
    if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and _has_nothing_of(partition, data.log_start_offset):
        start_anew(broker, partition, data.log_start_offset)
        return 0
    if data.error_code != ErrorCode.NONE:
        code = known_code(data.error_code)
        raise KafkaError(code, f"the leader of {partition} does not serve it: {code.name}")
    if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
        truncate(broker, partition, data.diverging_epoch)
        return 0
    size = _append(broker, partition, data)
    if not partition.closed:
        _follow_watermarks(broker, partition, data)
    return size


def _has_nothing_of(partition: Partition, log_start_offset: int) -> bool:
    """Whether this log ends before the leader's begins, or is empty, wherever that is."""
    log_ = partition.log
    return log_start_offset > log_.end_offset or log_.start_offset == log_.end_offset


# -- appending -----------------------------------------------------------------------------------------


def _append(broker: Broker, partition: Partition, data: PartitionData) -> int:
    records = data.records
    if not records:
        return 0
    assert isinstance(records, memoryview)
    batches = split(records)
    for position, header in batches:  # all, before the first is taken: what is in the log is also written
        if not crc_ok(records, position, header.size):
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"a batch of {partition} came damaged from its leader"
            )
    first_position, first = batches[0]
    if _begins_within(partition, first):
        copy = bytes(records[first_position : first_position + first.size])
        begin_with(broker, partition, copy, first, partial(_follow_watermarks, broker, partition, data))
        return 0
    if partition.log.refuses:
        raise StorageError(partition.log.offline or "the log is offline")
    try:
        for position, header in batches:
            if header.base_offset >= partition.log.end_offset:
                _append_batch(partition, records[position : position + header.size], header)
        partition.write()
    except Exception:
        with suppress(StorageError):
            partition.write()  # nothing stays queued, and a failed early write has been told
        read_again(broker, partition)
        raise
    broker.appends.unsynced[partition] = None
    broker.metrics.replication_bytes_in += len(records)
    broker.metrics.replication_batches_in += len(batches)
    return len(records)


def _begins_within(partition: Partition, first: BatchHeader) -> bool:
    """Whether this log is empty and the leader's begins in the middle of a batch."""
    log_ = partition.log
    return log_.start_offset == log_.end_offset and first.base_offset < log_.end_offset <= first.last_offset


def _append_batch(partition: Partition, batch: memoryview, header: BatchHeader) -> None:
    partition.epochs.assign(header.partition_leader_epoch, header.base_offset)
    partition.log.append(batch, header)
    partition.producers.transactions.settle(partition.high_watermark)
    aborted = accept_batch(partition.producers, batch, header)
    if aborted is not None:
        partition.log.append_aborted(aborted)


def _follow_watermarks(broker: Broker, partition: Partition, data: PartitionData) -> None:
    log_ = partition.log
    high_watermark = min(data.high_watermark, log_.end_offset)
    if high_watermark > partition.high_watermark:
        partition.high_watermark = high_watermark
        if partition.waits:
            broker.arrivals.note(partition, 1)
            broker.appends.finish_soon()
    if log_.start_offset < data.log_start_offset <= partition.high_watermark:
        log_.advance_start(data.log_start_offset)
