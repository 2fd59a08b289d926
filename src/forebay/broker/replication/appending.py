"""What a follower does with the leader's answer: append the batches as they are, or cut off what differs.

A follower's log is a copy: offsets, epochs and bytes are the leader's. The state that the leader keeps of its
producers is rebuilt from the batches on the way in, so that the follower can take over at any moment.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from forebay.broker.partition import Partition
from forebay.broker.producer_state import accept_batch, load_producers
from forebay.errors import ErrorCode, KafkaError, StorageError, known_code
from forebay.wire.batch import BatchHeader, crc_ok, split
from forebay.wire.messages.fetch import EpochEndOffset, PartitionData

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
        _start_anew(broker, partition, data.log_start_offset)
        return 0
    if data.error_code != ErrorCode.NONE:
        code = known_code(data.error_code)
        raise KafkaError(code, f"the leader of {partition} does not serve it: {code.name}")
    if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
        _truncate(broker, partition, data.diverging_epoch)
        return 0
    size = _append(broker, partition, data)
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
    _begin_with(broker, partition, batches[0][1])
    try:
        for position, header in batches:
            if header.base_offset >= partition.log.end_offset:
                _append_batch(partition, records[position : position + header.size], header)
        partition.write()
    except StorageError:
        with suppress(StorageError):
            partition.write()  # hears of what was lost at the end of a segment; till then nothing is taken
        _reload(partition)
        raise
    broker.appends.unsynced[partition] = None
    broker.metrics.replication_bytes_in += len(records)
    return len(records)


def _begin_with(broker: Broker, partition: Partition, first: BatchHeader) -> None:
    """Let an empty log begin where the first batch does: the leader's may begin in the middle of it."""
    log_ = partition.log
    if log_.start_offset == log_.end_offset and first.base_offset < log_.end_offset <= first.last_offset:
        _start_anew(broker, partition, first.base_offset)


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


# -- cutting off ---------------------------------------------------------------------------------------


def _truncate(broker: Broker, partition: Partition, leader: EpochEndOffset) -> None:
    """Go back to where the leader's log and this one are the same for certain."""
    log_ = partition.log
    known, end_offset = partition.epochs.end_offset_for(leader.epoch, log_.end_offset)
    if known < 0:
        end_offset = partition.high_watermark  # the epochs say nothing; what is committed is the same
    elif known == leader.epoch:
        end_offset = min(end_offset, leader.end_offset)
    end_offset = log_.end_below(max(min(end_offset, log_.end_offset), log_.start_offset))
    lost = partition.high_watermark - end_offset
    report = log.warning if lost > 0 else log.info
    report(
        "cutting off what the leader does not have",
        extra={
            "partition": str(partition),
            "from": end_offset,
            "to": log_.end_offset,
            "committed": max(lost, 0),
        },
    )
    with broker.data.lowered(partition.topic, partition.index, end_offset):
        log_.truncate_to(end_offset)
    partition.epochs.truncate_from(log_.end_offset)
    _reload(partition)


def _start_anew(broker: Broker, partition: Partition, offset: int) -> None:
    """Nothing of this log continues in the leader's: it begins where that one does."""
    log.info("beginning anew", extra={"partition": str(partition), "offset": offset})
    with broker.data.lowered(partition.topic, partition.index, 0):
        partition.log.truncate_fully_and_start_at(offset)
    partition.epochs.truncate_from(0)
    _reload(partition)


def _reload(partition: Partition) -> None:
    """Whatever was known of the end that is gone is read again."""
    partition.epochs.forget_from(partition.log.end_offset)
    partition.producers = load_producers(partition.log, partition.epochs)
    partition.truncated()
