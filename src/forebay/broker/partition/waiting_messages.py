"""The loop's knowledge of the delayed messages of a partition.

The index in a file knows all of them (`storage/delays/`) and follows the log; this is what appending,
delivering and retention need of it at once. `broker/delays/` keeps it up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from forebay.core.delays.unindexed import UnindexedNotes
from forebay.core.partition.batch_rules import AppendPolicy, place
from forebay.core.partition.delayed_on_append import Delayed
from forebay.core.partition.record_rules import UNEXAMINED, Unexamined
from forebay.errors import ErrorCode, InvalidRecords, KafkaError, StorageError
from forebay.storage.delays.index import IndexState
from forebay.storage.log.log import Log
from forebay.wire.batch import BatchHeader, EndTxnMarker, read_header
from forebay.wire.state.delay_notes import binds, is_note

_NAMED_RECORDS_MAX = 1000


FindKeys = Callable[[Sequence[bytes]], frozenset[bytes]]


class Carry(NamedTuple):
    """The part of a log from which messages that wait are to be carried to its end."""

    below: int
    size: int


def start_with_note(log: Log, offset: int) -> int:
    """Where a log is to begin so that nothing from an offset on is lost: at the note before it, if the batch
    there is bound to one. No consumer sees the note."""
    if not log.start_offset < offset < log.end_offset:
        return offset
    note, batch = _header_at(log, offset - 1), _header_at(log, offset)
    if note is None or batch is None or batch.base_offset != offset:
        return offset
    return note.base_offset if is_note(note) and binds(note, batch) else offset


def _header_at(log: Log, offset: int) -> BatchHeader | None:
    """Of the batch that holds an offset, or of the next one; None if it is damaged."""
    try:
        return next((header for _, header in log.headers(log.read(offset, 1))), None)
    except StorageError:
        return None


class WaitingMessages:
    __slots__ = (
        "_leader_epoch",
        "carry",
        "find_keys",
        "in_flight_end",
        "index",
        "on_carry",
        "opened_end",
        "sync_index",
        "unindexed",
    )

    def __init__(self, leader_epoch: int, end_offset: int) -> None:
        self.index: IndexState | None = None
        """As of now; None until it is opened."""
        self.carry: Carry | None = None
        """The messages that have to be carried on before retention may delete more."""
        self.on_carry: Callable[[], None] | None = None
        self.sync_index: Callable[[], None] | None = None
        """Has what the index knows survive a loss of power. For threads; raises StorageError."""
        self.find_keys: FindKeys | None = None
        """Finds out under which schedule keys messages wait by the index. For threads."""
        self.opened_end: int | None = end_offset
        """Where the log ended when it was opened, until its index is: one that is ahead knows of messages
        that a loss of power has taken, and others may have got their offsets since."""
        self.begin_term(leader_epoch, end_offset)

    @property
    def pending(self) -> int:
        return 0 if self.index is None else self.index.pending

    @property
    def may_have_messages(self) -> bool:
        """True if messages wait, and until the index knows of all that was appended before this term.

        It is always a little behind a log that grows. What this leader has appended it knows itself.
        """
        index, unindexed = self.index, self.unindexed
        if index is None or index.pending or index.position < unindexed.wait_for:
            return True
        return unindexed.messages > 0

    @property
    def kept_from(self) -> int:
        """Nothing from this offset on may be deleted by retention."""
        if self.index is None:
            return 0
        oldest = self.index.oldest_home
        return self.index.position if oldest is None else min(oldest, self.index.position)

    def carry_below(self, offset: int, size: int) -> None:
        """Retention would delete the log below this offset, of this size, but for what waits there."""
        self.carry = Carry(offset, size)
        if self.on_carry is not None:
            self.on_carry()

    def begin_term(self, leader_epoch: int, start_offset: int) -> None:
        """This leader remembers what it appends from here on. Of what lies before, the index has to tell.

        Also after a write has failed: what was remembered of it never happened.
        """
        self._leader_epoch = leader_epoch
        self.unindexed = UnindexedNotes(start_offset)
        """The notes that this leader has appended and the index does not have yet."""
        self.in_flight_end = 0
        """Behind the last delivery of this term: the next one waits until the index has it."""

    def indexed(self, state: IndexState) -> None:
        self.index = state
        self.unindexed.indexed(state.position)

    def append_delayed(
        self, log: Log, batch: memoryview, header: BatchHeader, delayed: Delayed
    ) -> int | Unexamined:
        """Queue a client's batch and the note of what was taken out of it; the offset of the batch, or
        UNEXAMINED if it has to be found out in a thread how many messages it replaces.

        Raises KafkaError if too much would wait, or the log cannot be written.
        """
        replaced = self._check_room(delayed)
        if replaced is UNEXAMINED:
            return UNEXAMINED
        base_offset = self.append_noted(log, delayed.note, batch, header)
        self.unindexed.appended(
            log.end_offset,
            keys=delayed.keys,
            ids=delayed.ids,
            waiting=len(delayed.numbers) - replaced,
            scheduled=delayed.scheduled,
            producer_id=header.producer_id if header.is_transactional else None,
        )
        return base_offset

    def append_noted(self, log: Log, note: bytearray, batch: memoryview, header: BatchHeader) -> int:
        """Queue a note and the batch that it is bound to; the offset of the batch. Raises StorageError."""
        offset, view = log.end_offset, memoryview(note)
        note_header = place(view, read_header(view), offset, self._leader_epoch)
        header = place(batch, header, offset + 1, self._leader_epoch)
        log.append_together(((view, note_header), (batch, header)))
        return offset + 1

    def append_note(self, log: Log, note: bytearray) -> None:
        """Queue a note that stands alone. Raises StorageError."""
        view = memoryview(note)
        log.append(view, place(view, read_header(view), log.end_offset, self._leader_epoch))

    def transaction_ended(self, header: BatchHeader, marker: EndTxnMarker, first_offset: int | None) -> None:
        """A marker was appended. `first_offset`: where its transaction began, if there was one."""
        self.unindexed.ended(header.next_offset, marker.producer_id, first_offset, commit=marker.commit)

    def lookup_for(self, policy: AppendPolicy, record_count: int) -> FindKeys | None:
        """The lookup to make before a batch is refused because too many messages wait; None while there is
        room."""
        if policy.delays is None or self._count(record_count) <= policy.delays.pending_max:
            return None
        return self.find_keys

    def _count(self, more: int) -> int:
        return self.pending + self.unindexed.messages + more

    def _check_room(self, delayed: Delayed) -> int | Unexamined:
        """How many of the messages are known to take the place of others. Raises KafkaError."""
        count, most = self._count(len(delayed.numbers)), delayed.pending_max
        if not delayed.numbers or count <= most:
            return 0
        if delayed.scheduled and delayed.replaces is None and self.find_keys is not None:
            return UNEXAMINED
        replaced = self._replaced(delayed)
        if count - replaced <= most:
            return replaced
        if self.unindexed.has_scheduled:
            # Some of what is counted may have replaced others: it is known when the index has it.
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "it is not known yet how many messages wait")
        reason = f"more than {most} messages would wait in this partition (forebay.delay.pending.max)"
        named = dict.fromkeys(delayed.numbers[:_NAMED_RECORDS_MAX], reason)
        raise InvalidRecords(ErrorCode.POLICY_VIOLATION, reason, named)

    def _replaced(self, delayed: Delayed) -> int:
        held = set(delayed.replaces or ())
        replaced = 0
        for key in delayed.scheduled:
            if key in held or self.unindexed.holds(key):
                replaced += 1
            held.add(key)
        return replaced
