"""Mistakes with messages that each wait for their own time; see brokers.py."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.delays import live_delays, note_reading
from forebay.broker.delays.appending import Delivery, NoteAppender
from forebay.broker.partition.waiting_messages import WaitingMessages
from forebay.broker.upkeep import retention
from forebay.core.delays.unindexed import UnindexedNotes
from forebay.core.partition.compaction.batch_filter import BatchFilter
from forebay.errors import KafkaError
from forebay.storage.delays.index import Entry, Undecided
from forebay.storage.delays.sqlite_index import SqliteDelayIndex
from forebay.wire.state.delay_notes import Waiting


def count_notes_without_their_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(note_reading, "binds", lambda _note, _after: True)


def deliver_before_the_index_knows_the_term_before(patch: pytest.MonkeyPatch) -> None:
    """What a leader before has delivered is not known yet."""
    begin_term = WaitingMessages.begin_term

    def at_once(self: WaitingMessages, leader_epoch: int, _start_offset: int) -> None:
        begin_term(self, leader_epoch, 0)

    patch.setattr(WaitingMessages, "begin_term", at_once)


def forget_cancellations_that_are_not_indexed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UnindexedNotes, "ends", lambda _self, _message: False)
    patch.setattr(UnindexedNotes, "ended_names", lambda _self: (frozenset(), frozenset()))


def deliver_what_arrived_first_first(patch: pytest.MonkeyPatch) -> None:
    """Of those that are due, in the order of their arrival."""
    due = SqliteDelayIndex.due

    def by_arrival(self: SqliteDelayIndex, now_ms: int, **how: int) -> list[Waiting]:
        return sorted(due(self, now_ms, **how), key=lambda each: each.id)

    patch.setattr(SqliteDelayIndex, "due", by_arrival)


def deliver_before_the_index_knows_what_was_noted(patch: pytest.MonkeyPatch) -> None:
    """What is due sooner may have been noted since."""
    patch.setattr(live_delays, "_Due", lambda now_ms, _noted_end: SimpleNamespace(now_ms=now_ms, noted_end=0))


def deliver_early(patch: pytest.MonkeyPatch) -> None:
    due = SqliteDelayIndex.due

    def early(self: SqliteDelayIndex, now_ms: int, **how: int) -> list[Waiting]:
        return due(self, now_ms + 300, **how)

    patch.setattr(SqliteDelayIndex, "due", early)


def schedule_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Notes of transactions count at once."""
    settle = note_reading._settle

    def at_once(read: note_reading.NotesRead, bound: Any, after: Any) -> None:
        settle(read, bound, after._replace(attributes=after.attributes & ~0x10))

    patch.setattr(note_reading, "_settle", at_once)


def forget_transactions_that_were_open(patch: pytest.MonkeyPatch) -> None:
    take = SqliteDelayIndex._take

    def drop(self: SqliteDelayIndex, db: Any, entry: Entry) -> None:
        if not isinstance(entry, Undecided):
            take(self, db, entry)

    patch.setattr(SqliteDelayIndex, "_take", drop)


def delete_what_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention, "_without_waiting", lambda _partition, plan: plan)


def compact_notes_that_are_needed(patch: pytest.MonkeyPatch) -> None:
    clean_note = BatchFilter._clean_note

    def clean(self: BatchFilter, batch: Any, header: Any) -> Any:
        self.notes_below = 2**63
        return clean_note(self, batch, header)

    patch.setattr(BatchFilter, "_clean_note", clean)


def report_deliveries_that_are_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Whoever asked for them is told that they were made, and the next leader does not have them."""
    deliver = NoteAppender.deliver

    async def hopeful(self: NoteAppender, deliveries: Sequence[Delivery]) -> bool:
        try:
            return await deliver(self, deliveries)
        except KafkaError:
            return True

    patch.setattr(NoteAppender, "deliver", hopeful)


def compact_notes_that_an_older_index_needs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SqliteDelayIndex, "sync", lambda _self: None)


def forget_what_was_ended_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """A transaction ends a message behind its note, and the log can be cut between them."""

    def none(self: SqliteDelayIndex, _db: Any) -> None:
        self._out_of_order = 0

    patch.setattr(SqliteDelayIndex, "_count_out_of_order", none)
