"""A follower's use of the leader's answer: append the batches as they are, or cut off what differs.

Cutting takes longer than the loop may stand still, and happens in a thread (`truncation.py`): then the
partition is out of use when `take_over` returns.

A follower's log is a copy: offsets, epochs and bytes are the leader's. The state that the leader keeps of its
producers is rebuilt from the batches on the way in, so that the follower can take over at any moment.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from forebay.broker.partition.long_polls import Arrivals
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.producer_replay import accept_batch
from forebay.broker.partition.waiting_messages import WaitingMessages
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.broker.replication.truncation import Truncation
from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import ErrorCode, KafkaError, ProtocolError, StorageError, known_code
from forebay.wire.batch import BatchHeader, crc_ok, read_header, split
from forebay.wire.messages.fetch import PartitionData
from forebay.wire.record_spans import payload_of, readable_spans, rest_of
from forebay.wire.state.delay_notes import is_note

_UNPACKED_BYTES_MAX = 1 << 16


def last_fetched_epoch(partition: Partition) -> int:
    """The leader epoch of the last batch here; -1 if there is none."""
    end_offset = partition.log.end_offset
    return partition.epochs.epoch_at(end_offset - 1) if end_offset > partition.log.start_offset else -1


_CLUSTER_ACTION = (
    "; this broker's user may not replicate. Add it to super.users on all brokers, or allow it: "
    "`forebay acl add User:NAME cluster-action cluster`"
)


class FollowerAppend:
    __slots__ = ("_arrivals", "_metrics", "_truncation", "_write_cycle")

    def __init__(
        self, write_cycle: WriteCycle, arrivals: Arrivals, metrics: Metrics, truncation: Truncation
    ) -> None:
        self._write_cycle = write_cycle
        self._arrivals = arrivals
        self._metrics = metrics
        self._truncation = truncation

    def take_over(self, partition: Partition, data: PartitionData) -> int:
        """Make the leader's answer the follower's; the bytes appended. Raises KafkaError if it cannot be."""
        error_code = data.error_code
        if error_code == ErrorCode.OFFSET_OUT_OF_RANGE and _has_nothing_of(partition, data.log_start_offset):
            self._truncation.start_anew(partition, data.log_start_offset)
            return 0
        if error_code != ErrorCode.NONE:
            code = known_code(error_code)
            advice = _CLUSTER_ACTION if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else ""
            raise KafkaError(code, f"the leader of {partition} does not serve it: {code.name}{advice}")
        if data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            self._truncation.truncate(partition, data.diverging_epoch)
            return 0
        size = self._append(partition, data)
        if not partition.closed:
            self._follow_watermarks(partition, data)
        return size

    def _append(self, partition: Partition, data: PartitionData) -> int:
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
            then = partial(self._follow_watermarks, partition, data)
            self._truncation.begin_with(partition, copy, first, then)
            return 0
        if partition.log.offline is not None:
            self._give_up_room(partition, data)
        try:
            for position, header in batches:
                if header.base_offset >= partition.log.end_offset:
                    _append_batch(partition, records[position : position + header.size], header)
                elif header.last_offset >= partition.log.end_offset:
                    _append_rest(partition, records[position : position + header.size], header)
            partition.write()
        except Exception:
            with suppress(StorageError):
                partition.write()  # nothing stays queued, and a failed early write has been told
            self._truncation.read_again(partition)
            raise
        self._write_cycle.unsynced[partition] = None
        self._metrics.replication_bytes_in += len(records)
        self._metrics.replication_batches_in += len(batches)
        return len(records)

    def _give_up_room(self, partition: Partition, data: PartitionData) -> None:
        """The log could not be written: delete what the leader has deleted, if it is to be tried again.

        Raises StorageError if it is not tried now.
        """
        log_ = partition.log
        if not log_.offline_for_good:
            self._follow_watermarks(partition, data)
        if log_.refuses:
            raise StorageError(log_.offline or "the log is offline")

    def _follow_watermarks(self, partition: Partition, data: PartitionData) -> None:
        log_ = partition.log
        high_watermark = min(data.high_watermark, log_.end_offset)
        if high_watermark > partition.high_watermark:
            partition.high_watermark = high_watermark
            if partition.waiters:
                self._arrivals.note(partition, 1)
                self._write_cycle.finish_soon()
        if log_.start_offset < data.log_start_offset <= partition.high_watermark:
            log_.advance_start(data.log_start_offset)


def _has_nothing_of(partition: Partition, log_start_offset: int) -> bool:
    """True if this log ends before the leader's begins, or is empty, wherever that is."""
    log_ = partition.log
    return log_start_offset > log_.end_offset or log_.start_offset == log_.end_offset


def _begins_within(partition: Partition, first: BatchHeader) -> bool:
    """True if this log is empty and the leader's begins in the middle of a batch."""
    log_ = partition.log
    return log_.start_offset == log_.end_offset and first.base_offset < log_.end_offset <= first.last_offset


def _append_rest(partition: Partition, batch: memoryview, header: BatchHeader) -> None:
    """Add the offsets that a batch has beyond the end of this log.

    The leader's compaction lets a batch reach over later ones that lost all their messages (`widened`). This
    log ended between the two, so it has all messages of the batch.
    """
    end_offset = partition.log.end_offset
    if _has_messages_from(end_offset, batch, header, partition.log.config.decompress_max_bytes):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"a batch of {partition} has messages on both sides of {end_offset}"
        )
    rest = memoryview(rest_of(header, end_offset))
    _append_batch(partition, rest, read_header(rest))


def _has_messages_from(offset: int, batch: memoryview, header: BatchHeader, max_bytes: int) -> bool:
    """True if that is certain. What is large is not unpacked on the event loop: the leader did, and widened
    it."""
    try:
        spans = readable_spans(payload_of(batch, header, min(max_bytes, _UNPACKED_BYTES_MAX)), header)
        return any(header.base_offset + span.offset_delta >= offset for span in spans)
    except ProtocolError:
        return False


def _append_batch(partition: Partition, batch: memoryview, header: BatchHeader) -> None:
    partition.epochs.assign(header.partition_leader_epoch, header.base_offset)
    partition.log.append(batch, header)
    partition.producers.transactions.settle(partition.high_watermark)
    aborted = accept_batch(partition.producers, batch, header)
    if aborted is not None:
        partition.log.append_aborted(aborted)
    if header.is_control and partition.delayed_messages is None and is_note(header):
        # Its topic takes no delays any more, but messages of an earlier time still wait.
        partition.delayed_messages = WaitingMessages(partition.leader_epoch, partition.log.end_offset)
