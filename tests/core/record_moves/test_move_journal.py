"""The journal of movers: who may write it, and what it remembers."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.record_moves.journal import IDLE_MS_MAX, PENDING_MS_MAX, SWEEP_MS
from forebay.core.record_moves.move import Move, MoverState, mover_id
from forebay.core.record_moves.mover import Ask, Identify, Journal, Open, Plan, Send, Sent, moving
from forebay.core.step import Now
from forebay.errors import ErrorCode
from forebay.wire.messages.move_journal import MoveJournalRequest, PendingMove
from support.machines.moving import JournalLog

PENDING = PendingMove(topic_id=b"t" * 16, partition=1, record_count=2, entries=b"ab", revision=7)
MOVE = Move(topic_id=b"t" * 16, partition=1, record_count=2, entries=b"ab", revision=7)


def opening(term: int) -> MoveJournalRequest:
    return MoveJournalRequest(mover_id="m", term=term)


def writing(term: int, version: int, **fields: Any) -> MoveJournalRequest:
    return MoveJournalRequest(mover_id="m", term=term, version=version, **fields)


def test_what_is_written_is_found_by_the_next_mover() -> None:
    journal = JournalLog()
    version = journal.ask(opening(3)).version
    written = journal.ask(writing(3, version, producer_id=9, next_sequence=5, pending=PENDING))
    assert written.error_code == ErrorCode.NONE
    journal.reload()
    found = journal.ask(opening(4))
    assert (found.producer_id, found.next_sequence, found.pending) == (9, 5, PENDING)


def test_whoever_opens_fences_all_before_even_of_the_same_term() -> None:
    journal = JournalLog()
    first = journal.ask(opening(3)).version
    second = journal.ask(opening(3)).version
    assert journal.ask(writing(3, first)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert journal.ask(writing(3, second)).error_code == ErrorCode.NONE


def test_a_term_that_is_over_cannot_open() -> None:
    journal = JournalLog()
    journal.ask(opening(3))
    assert journal.ask(opening(2)).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_nobody_writes_without_having_opened() -> None:
    journal = JournalLog()
    assert journal.ask(writing(3, 0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert not journal.log


def test_a_write_whose_answer_was_lost_may_be_repeated() -> None:
    journal = JournalLog()
    version = journal.ask(opening(3)).version
    request = writing(3, version, producer_id=9, pending=PENDING)
    first, length = journal.ask(request), len(journal.log)
    assert journal.ask(request) == first
    assert len(journal.log) == length
    other = writing(3, version, producer_id=8, pending=PENDING)
    assert journal.ask(other).error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    "request_",
    [
        MoveJournalRequest(mover_id="", term=1),
        MoveJournalRequest(mover_id="m", term=-1),
        MoveJournalRequest(mover_id="m" * 2000, term=1),
        writing(1, 0, pending=PendingMove(record_count=0)),
        writing(1, 0, pending=PendingMove(record_count=1, entries=bytes(100_000))),
    ],
)
def test_nonsense_is_refused(request_: MoveJournalRequest) -> None:
    assert JournalLog().ask(request_).error_code == ErrorCode.INVALID_REQUEST


def test_movers_are_forgotten_after_a_week_and_with_a_pending_move_after_a_month() -> None:
    journal = JournalLog()
    busy = journal.ask(MoveJournalRequest(mover_id="busy", term=1)).version
    journal.ask(MoveJournalRequest(mover_id="busy", term=1, version=busy, pending=PENDING))
    journal.ask(opening(1))

    def left_after(age_ms: int) -> set[str]:
        journal.keep(journal.machine.tick(Now(ms=SWEEP_MS, wall_ms=0, trusted_ms=age_ms)).records)
        journal.reload()
        return set(journal.machine.movers)

    assert left_after(IDLE_MS_MAX) == {"busy", "m"}
    assert left_after(IDLE_MS_MAX + 1) == {"busy"}
    assert left_after(PENDING_MS_MAX) == {"busy"}
    assert left_after(PENDING_MS_MAX + 1) == set()


def test_a_mover_that_waits_is_not_forgotten_if_it_opens_its_journal_again() -> None:
    journal = JournalLog()
    version = journal.ask(opening(1)).version
    journal.ask(writing(1, version, pending=PENDING))
    journal.now = Now(ms=0, wall_ms=0, trusted_ms=PENDING_MS_MAX)
    assert journal.ask(opening(1)).pending == PENDING
    journal.keep(journal.machine.tick(Now(ms=0, wall_ms=0, trusted_ms=2 * PENDING_MS_MAX)).records)
    assert set(journal.machine.movers) == {"m"}


def test_a_mover_has_a_name_that_the_journal_takes_and_no_other_mover_has() -> None:
    assert mover_id("dlq", "g:t:0") == "dlq:g:t:0"
    sources = [f"{'ü' * length}:t:{number}" for length in (900, 996, 5000) for number in (0, 1)]
    names = {mover_id("dlq", source) for source in sources}
    assert len(names) == len(sources)
    for name in names:
        assert JournalLog().ask(MoveJournalRequest(mover_id=name, term=1)).error_code == ErrorCode.NONE


def test_a_target_that_lost_earlier_batches_is_sent_the_same_move_under_another_identity() -> None:
    work = moving(None)
    assert next(work) == Open()
    state = MoverState(term=1, version=4, producer_id=9, next_sequence=5, pending=MOVE)
    assert work.send(state) == Ask(MOVE)
    assert work.send(True) == Send(state)
    assert work.send(Sent.OUT_OF_ORDER) == Identify()
    again = MoverState(term=1, version=4, producer_id=10, next_sequence=0, pending=MOVE)
    assert work.send(10) == Journal(again)


def test_a_move_whose_target_is_gone_is_planned_anew_under_another_identity() -> None:
    work = moving(None)
    next(work)
    state = MoverState(term=1, version=4, producer_id=9, next_sequence=5, pending=MOVE)
    work.send(state)
    work.send(True)
    assert work.send(Sent.TARGET_GONE) == Plan()
    assert work.send(MOVE) == Identify()
    assert work.send(10) == Journal(MoverState(term=1, version=4, producer_id=10, pending=MOVE))
