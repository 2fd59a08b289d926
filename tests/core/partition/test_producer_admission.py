"""May a batch enter a partition? Every short history of a producer, and every batch that could come next.

Histories are walked exhaustively. At each point the decision is compared with an oracle that knows nothing
but the log, and must be the same from state that was kept and from state that was loaded from a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import pytest

from forebay.core.partition.producers.producer_admission import (
    APPEND,
    VERIFY,
    Decision,
    Refused,
    Repeats,
    admit,
    admit_marker,
    admit_own,
)
from forebay.core.partition.producers.producer_table import ProducerState, ProducerTable
from forebay.errors import ErrorCode
from forebay.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader, EndTxnMarker

PRODUCER = 7
DEPTH = 4
REMEMBERED = 5
TOP = 2**31 - 1

Outcome = Decision | ErrorCode


def header_of(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    offset: int = 0,
    transactional: bool = False,
    control: bool = False,
) -> BatchHeader:
    attributes = (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    time = 1000 + offset
    return BatchHeader(
        offset, 100, 0, 2, 0, attributes, count - 1, time, time, PRODUCER, epoch, sequence, count
    )


class Entry(NamedTuple):
    """A batch in the log."""

    header: BatchHeader
    marker: EndTxnMarker | None = None


def code_or(decision: Decision) -> Outcome:
    return decision.code if isinstance(decision, Refused) else decision


# -- the oracle --------------------------------------------------------------------------------------------


@dataclass
class Log:
    entries: list[Entry] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].header.next_offset if self.entries else 0

    @property
    def epoch(self) -> int:
        return self.entries[-1].header.producer_epoch

    @property
    def numbered(self) -> list[BatchHeader]:
        """The data batches since the epoch began."""
        found: list[BatchHeader] = []
        for header, marker in reversed(self.entries):
            if header.producer_epoch != self.epoch:
                break
            if marker is None:
                found.append(header)
        return found[::-1]

    @property
    def next_sequence(self) -> int:
        return self.numbered[-1].last_sequence + 1 if self.numbered else 0

    @property
    def open(self) -> list[BatchHeader]:
        """The batches of the open transaction."""
        found: list[BatchHeader] = []
        for header, marker in self.entries:
            if marker is not None:
                found.clear()
            elif header.is_transactional:
                found.append(header)
        return found

    def expected(self, header: BatchHeader, *, verified: bool) -> Outcome:
        unverified = header.is_transactional and not verified
        if not self.entries:
            return VERIFY if unverified else APPEND
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.open and not header.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        if header.producer_epoch > self.epoch:
            if header.base_sequence:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return VERIFY if unverified else APPEND
        if header.base_sequence == self.next_sequence:
            return VERIFY if unverified and not self.open else APPEND
        return self._expected_of_others(header)

    def _expected_of_others(self, header: BatchHeader) -> Outcome:
        """A batch of this epoch whose numbers do not come next."""
        same = [
            old
            for old in self.numbered[-REMEMBERED:]
            if (old.base_sequence, old.record_count) == (header.base_sequence, header.record_count)
        ]
        may_repeat = self.open if header.is_transactional else self.numbered
        for old in same:
            if old in may_repeat:
                return Repeats(old.base_offset, old.max_timestamp)
        used = header.base_sequence < self.next_sequence
        if header.is_transactional and (same or (used and not self.open)):
            return ErrorCode.UNKNOWN_PRODUCER_ID
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# -- histories ---------------------------------------------------------------------------------------------


def events(log: Log) -> Iterator[Entry]:
    """Whatever may come next: batches of one or two records, markers that keep the epoch or raise it."""
    epoch = log.epoch if log.entries else 0
    for count in (1, 2):
        following = header_of(log.next_sequence if log.entries else 0, count, epoch=epoch)
        yield Entry(following._replace(base_offset=log.end_offset, attributes=TRANSACTIONAL))
        if not log.open:
            yield Entry(following._replace(base_offset=log.end_offset))
    yield Entry(header_of(0, 1, epoch=epoch + 1, offset=log.end_offset, transactional=True))
    for bump in (0, 1):
        marker = EndTxnMarker(PRODUCER, epoch + bump, commit=False, coordinator_epoch=0)
        control = header_of(-1, epoch=epoch + bump, offset=log.end_offset, transactional=True, control=True)
        yield Entry(control, marker)


def histories(log: Log, depth: int) -> Iterator[Log]:
    yield log
    if depth:
        for entry in events(log):
            yield from histories(Log([*log.entries, _timed(entry)]), depth - 1)


def _timed(entry: Entry) -> Entry:
    time = 1000 + entry.header.base_offset
    return Entry(entry.header._replace(base_timestamp=time, max_timestamp=time), entry.marker)


def accept(table: ProducerTable, entry: Entry) -> None:
    if entry.marker is None:
        table.accept(entry.header)
    else:
        table.accept_marker(entry.header, entry.marker)


def replayed(log: Log) -> ProducerTable:
    table = ProducerTable()
    for entry in log.entries:
        accept(table, entry)
    return table


def reloaded_each_time(log: Log) -> ProducerTable:
    """As a broker that is stopped and started after every batch."""
    table = ProducerTable()
    for entry in log.entries:
        accept(table, entry)
        table = ProducerTable.from_bytes(table.to_bytes())
    return table


def probes() -> Iterator[tuple[BatchHeader, bool]]:
    for epoch in (0, 1, 2):
        for sequence in range(6):
            for count in (1, 2):
                yield header_of(sequence, count, epoch=epoch), False
                transactional = header_of(sequence, count, epoch=epoch, transactional=True)
                yield transactional, False
                yield transactional, True


PROBES = list(probes())


def test_every_batch_after_every_short_history() -> None:
    for log in histories(Log(), DEPTH):
        state = replayed(log).find(PRODUCER)
        for header, verified in PROBES:
            decision = admit(state, header, header.base_sequence if verified else None)
            assert code_or(decision) == log.expected(header, verified=verified), (log, header, verified)


def test_stopping_after_every_batch_changes_no_decision() -> None:
    def without_time(decision: Decision) -> Outcome | int:
        """A snapshot has one time for a producer's last batch and for the marker behind it."""
        return decision.base_offset if isinstance(decision, Repeats) else code_or(decision)

    for log in histories(Log(), DEPTH):
        kept, loaded = replayed(log).find(PRODUCER), reloaded_each_time(log).find(PRODUCER)
        for header, verified in PROBES:
            first = header.base_sequence if verified else None
            assert without_time(admit(loaded, header, first)) == without_time(admit(kept, header, first))


def test_what_could_not_be_written_leaves_no_trace() -> None:
    """Any stretch at the end of any short history is undone as if it had never been accepted.

    But for one thing: a batch that was refused room stays the first of its producer.
    """
    for log in histories(Log(), DEPTH):
        for kept in range(len(log.entries)):
            table = replayed(Log(log.entries[:kept]))
            expected = decisive(table)
            unstable = table.transactions.first_unstable_offset(0)
            table.written()
            for entry in log.entries[kept:]:
                accept(table, entry)
            table.truncate(log.entries[kept].header.base_offset)
            undone = log.entries[kept].header
            if not expected and not undone.is_control:
                state = table.find(PRODUCER)
                assert state is not None and not state.batches
                assert state.next_sequence == undone.base_sequence
            else:
                assert decisive(table) == expected
            assert table.transactions.first_unstable_offset(0) == unstable


def decisive(table: ProducerTable) -> list[ProducerState]:
    """What decisions depend on: all but the time of a producer's last batch, which is only shown."""
    return [replace(state.copy(), last_timestamp=0) for state in table]


def test_only_a_batch_of_the_open_transaction_is_ever_repeated() -> None:
    """Said without the oracle: whatever numbers a client uses again, its batch is not taken for another."""
    found = 0
    for log in histories(Log(), DEPTH):
        state = replayed(log).find(PRODUCER)
        opened = {header.base_offset for header in log.open}
        for header, verified in PROBES:
            decision = admit(state, header, 0 if verified else None)
            if header.is_transactional and isinstance(decision, Repeats):
                assert decision.base_offset in opened
                found += 1
    assert found


def test_a_retry_within_its_open_transaction_is_always_recognised() -> None:
    for log in histories(Log(), DEPTH):
        state = replayed(log).find(PRODUCER)
        opened = log.open
        for sent in opened if opened and opened[0].producer_epoch == log.epoch else ():
            retry = sent._replace(base_offset=0)
            assert admit(state, retry) == Repeats(sent.base_offset, sent.max_timestamp)


# -- rules that need more than short histories --------------------------------------------------------------


def test_five_batches_of_a_transaction_are_remembered() -> None:
    entries = [Entry(header_of(n, offset=n, transactional=True)) for n in range(7)]
    state = replayed(Log(entries)).find(PRODUCER)
    for n in range(2, 7):
        assert admit(state, header_of(n, transactional=True)) == Repeats(n, 1000 + n)
    too_old = admit(state, header_of(1, transactional=True))
    assert code_or(too_old) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("sequence", "code"),
    [
        (TOP, ErrorCode.UNKNOWN_PRODUCER_ID),
        (TOP - 1, ErrorCode.UNKNOWN_PRODUCER_ID),
        (0, ErrorCode.UNKNOWN_PRODUCER_ID),
        (2, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_what_was_used_before_is_told_from_what_is_ahead_where_numbers_wrap(
    sequence: int, code: ErrorCode
) -> None:
    aborted = EndTxnMarker(PRODUCER, 0, commit=False, coordinator_epoch=0)
    log = Log(
        [
            Entry(header_of(TOP - 1, 3, transactional=True)),  # the next is 1
            Entry(header_of(-1, offset=3, transactional=True, control=True), aborted),
        ]
    )
    state = replayed(log).find(PRODUCER)
    assert admit(state, header_of(1, transactional=True)) is VERIFY
    assert code_or(admit(state, header_of(sequence, transactional=True))) == code


def test_of_an_unknown_producer_nothing_overtakes_what_was_asked_for_first() -> None:
    def decision(sequence: int, verified_from: int | None) -> Outcome:
        return code_or(admit(None, header_of(sequence, transactional=True), verified_from))

    assert decision(3, None) is VERIFY
    assert decision(3, 3) is APPEND
    assert decision(3, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert decision(0, 3) is APPEND


def test_a_coordinator_writes_in_the_producers_epoch_or_a_later_one() -> None:
    state = replayed(Log([Entry(header_of(0, epoch=2, transactional=True))])).find(PRODUCER)
    assert admit_own(None, 0) is admit_own(state, 2) is admit_own(state, 3) is APPEND
    assert code_or(admit_own(state, 1)) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("bumps_epoch", [True, False])
@pytest.mark.parametrize("epoch", [1, 2, 3])
@pytest.mark.parametrize("coordinator_epoch", [4, 5, 6])
def test_markers(is_open: bool, bumps_epoch: bool, epoch: int, coordinator_epoch: int) -> None:
    before = EndTxnMarker(PRODUCER, 2, commit=True, coordinator_epoch=5)
    entries = [Entry(header_of(-1, epoch=2, transactional=True, control=True), before)]
    if is_open:
        entries.append(Entry(header_of(0, epoch=2, offset=1, transactional=True)))
    state = replayed(Log(entries)).find(PRODUCER)
    marker = EndTxnMarker(PRODUCER, epoch, commit=True, coordinator_epoch=coordinator_epoch)
    found = code_or(admit_marker(state, marker, bumps_epoch=bumps_epoch))
    if epoch < 2 or (epoch == 2 and bumps_epoch and is_open):
        assert found == ErrorCode.INVALID_PRODUCER_EPOCH
    elif coordinator_epoch < 5:
        assert found == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    else:
        assert found is APPEND
    assert admit_marker(None, marker, bumps_epoch=bumps_epoch) is APPEND


@pytest.mark.parametrize("transactional", [False, True])
def test_other_bytes_under_the_same_numbers_repeat_nothing_in_a_transaction(transactional: bool) -> None:
    table = ProducerTable()
    first = header_of(0, transactional=transactional)._replace(crc=1)
    table.accept(first)
    assert admit(table.find(PRODUCER), first) == Repeats(0, 1000)
    outcome = code_or(admit(table.find(PRODUCER), first._replace(crc=2)))
    assert outcome == (ErrorCode.UNKNOWN_PRODUCER_ID if transactional else Repeats(0, 1000))
    loaded = ProducerTable.from_bytes(table.to_bytes())
    assert admit(loaded.find(PRODUCER), first._replace(crc=2)) == Repeats(0, 1000), "nobody knows any more"
