"""Appends of the leader for delayed messages: deliveries, cancellations, and messages carried on.

One thing is in flight at a time: nothing is appended before the index has read what was appended last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from forebay.broker.delays.following import DelayHost, IndexFollower
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.waiting_messages import WaitingMessages
from forebay.broker.produce.commit_wait import commit_of
from forebay.core.delays.delivered_batch import fired_batch, fired_note
from forebay.errors import KafkaError, StorageError
from forebay.wire.batch import read_header
from forebay.wire.state.delay_notes import Waiting

_DELIVERED_MAX = 5_000
"""Messages in one batch."""
_RECORD_BYTES = 40
"""The bytes that a message takes in its batch besides its body."""
_TROUBLE_PAUSE_S = 1.0


class Delivery(NamedTuple):
    """A batch of messages, and the note that goes with it."""

    messages: Sequence[Waiting]
    due_ms_sum: int
    """The sum of their due times; of one that is delivered early, the time of its delivery."""
    note: bytearray
    batch: bytearray


class NoteAppender:
    def __init__(
        self,
        host: DelayHost,
        partition: Partition,
        waiting: WaitingMessages,
        follower: IndexFollower,
        closing: asyncio.Future[None],
    ) -> None:
        """`closing` is done when the partition is out of use here."""
        self._host = host
        self._partition = partition
        self._waiting = waiting
        self._follower = follower
        self._closing = closing

    def may_append(self) -> bool:
        """True if the index knows all that was delivered and cancelled, and this broker may append."""
        partition, waiting = self._partition, self._waiting
        position = self._follower.state.position
        return (
            partition.is_leader
            and not partition.closed
            and partition.enough_replicas
            and self._host.lease.valid()
            and position >= waiting.in_flight_end
            and position >= waiting.unindexed.wait_for
            and self._follower.knows_start
        )

    # -- deliveries ------------------------------------------------------------------------------------

    def deliveries_of(self, messages: Sequence[Waiting], now_ms: int) -> list[Delivery]:
        """The batches that deliver these messages, in their order. In a thread."""
        bytes_max = self._partition.policy.max_message_bytes
        return [self._delivery_of(part, now_ms) for part in _parts(messages, bytes_max)]

    def fitting(self, messages: Sequence[Waiting]) -> Sequence[Waiting]:
        """The first of these messages: as many as go into one batch."""
        parts = _parts(messages, self._partition.policy.max_message_bytes)
        return parts[0] if parts else ()

    def _delivery_of(self, messages: Sequence[Waiting], now_ms: int) -> Delivery:
        policy = self._partition.policy
        batch = fired_batch(
            messages,
            partition=self._partition.index,
            now_ms=now_ms,
            log_append_time=policy.log_append_time,
            codec=messages[0].codec if policy.codec is None else policy.codec,
            compression_level=policy.compression_level,
        )
        due_ms_sum = sum(min(message.due_ms, now_ms) for message in messages)
        return Delivery(messages, due_ms_sum, fired_note(messages, now_ms), batch)

    async def deliver(self, deliveries: Sequence[Delivery]) -> bool:
        """Append deliveries and wait until they are committed; False if none was appended.

        One with a message that was cancelled meanwhile is left out, and those after it. Raises KafkaError if
        they are in the log, and may be committed yet or not.
        """
        if not self.may_append():
            return False
        appended: list[Delivery] = []
        try:
            self._queue(deliveries, appended)
            if not appended:
                return False
            await self._committed(sum(len(each.note) + len(each.batch) for each in appended))
        except StorageError:  # the log has said why; it is tried again
            await asyncio.wait((self._closing,), timeout=_TROUBLE_PAUSE_S)
            return False
        self._count(appended)
        return True

    def _queue(self, deliveries: Sequence[Delivery], appended: list[Delivery]) -> None:
        """Queue deliveries for one write. Raises StorageError if the first is refused."""
        log, waiting = self._partition.log, self._waiting
        for delivery in deliveries:
            if waiting.unindexed.ends_any(delivery.messages):
                return
            batch = memoryview(delivery.batch)
            try:
                waiting.append_noted(log, delivery.note, batch, read_header(batch))
            except StorageError:
                if not appended:
                    raise
                return
            waiting.in_flight_end = log.end_offset
            waiting.unindexed.appended(log.end_offset)
            appended.append(delivery)

    def _count(self, appended: Sequence[Delivery]) -> None:
        metrics, now_ms = self._host.metrics, self._host.time.now_ms()
        for delivery in appended:
            metrics.delayed_fired += len(delivery.messages)
            metrics.delayed_late_ms += max(len(delivery.messages) * now_ms - delivery.due_ms_sum, 0)

    # -- notes that stand alone ------------------------------------------------------------------------

    async def append_alone(self, note: bytearray, ids: Sequence[int] = ()) -> bool:
        """Append a note that ends these messages, or none, and wait until it is committed."""
        waiting, log = self._waiting, self._partition.log
        try:
            waiting.append_note(log, note)
            waiting.in_flight_end = log.end_offset
            waiting.unindexed.appended(log.end_offset, ids=ids)
            await self._committed(len(note))
        except KafkaError:
            await asyncio.wait((self._closing,), timeout=_TROUBLE_PAUSE_S)
            return False
        return True

    async def _committed(self, size: int) -> None:
        """Wait until what was just queued is committed, or this broker stops. Raises KafkaError."""
        self._host.write_cycle.queued(self._partition, size)
        outcome = commit_of(self._host.write_cycle, self._partition, self._host.loop)
        await asyncio.wait((outcome, self._closing), return_when=asyncio.FIRST_COMPLETED)
        error = outcome.result() if outcome.done() else None
        if error is not None:
            raise error


def _parts(messages: Sequence[Waiting], bytes_max: int) -> list[Sequence[Waiting]]:
    """The same messages in parts that make a batch each: at least one message, and no more than fit."""
    parts: list[Sequence[Waiting]] = []
    first = size = 0
    for number, message in enumerate(messages):
        added = len(message.body) + _RECORD_BYTES
        if number > first and (size + added > bytes_max or number - first == _DELIVERED_MAX):
            parts.append(messages[first:number])
            first, size = number, 0
        size += added
    if first < len(messages):
        parts.append(messages[first:])
    return parts
