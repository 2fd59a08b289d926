"""Idempotence: sequences, epochs, duplicates, and the table's way through snapshot, truncation and expiry."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.partition.open_transactions import CompletedTxn
from forebay.core.partition.producers.producer_admission import (
    APPEND,
    Decision,
    Refused,
    Repeats,
    admit,
    admit_marker,
)
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import ErrorCode, ProtocolError
from forebay.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader, EndTxnMarker, crc32c

TOP = 2**31 - 1


def batch(
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    epoch: int = 0,
    producer: int = 7,
    timestamp: int = 1000,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        offset, 100, 0, 2, 0, attributes, count - 1, timestamp, timestamp, producer, epoch, sequence, count
    )


def table_of(*headers: BatchHeader) -> ProducerTable:
    table = ProducerTable()
    for header in headers:
        table.accept(header)
    return table


def end(
    table: ProducerTable, *, offset: int, epoch: int = 0, producer: int = 7, commit: bool = True
) -> CompletedTxn | None:
    header = batch(-1, offset=offset, epoch=epoch, producer=producer, attributes=TRANSACTIONAL | CONTROL)
    return table.accept_marker(header, EndTxnMarker(producer, epoch, commit, 0))


def decide(table: ProducerTable, header: BatchHeader) -> Decision:
    return admit(table.find(header.producer_id), header)


def refusal(table: ProducerTable, header: BatchHeader) -> ErrorCode:
    decision = decide(table, header)
    assert isinstance(decision, Refused)
    return decision.code


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert decide(ProducerTable(), batch(41, epoch=3)) is APPEND


def test_the_next_sequence_is_fresh_and_others_are_not() -> None:
    table = table_of(batch(0, 3, offset=10))
    assert decide(table, batch(3)) is APPEND
    assert refusal(table, batch(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(table, batch(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # The same start with another length is not the same batch.
    assert refusal(table, batch(0, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeat_is_answered_with_its_first_offset() -> None:
    table = table_of(batch(0, 3, offset=10, timestamp=5), batch(3, 2, offset=20, timestamp=6))
    assert decide(table, batch(0, 3, timestamp=99)) == Repeats(10, 5)
    assert decide(table, batch(3, 2)) == Repeats(20, 6)


def test_five_batches_are_remembered() -> None:
    table = table_of(*(batch(i, offset=100 + i) for i in range(7)))
    for i in range(2, 7):
        assert decide(table, batch(i)) == Repeats(100 + i, 1000)
    assert refusal(table, batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert decide(table, batch(7)) is APPEND


def test_sequences_wrap() -> None:
    table = table_of(batch(TOP - 1, 2, offset=5))
    assert decide(table, batch(0)) is APPEND
    assert refusal(table, batch(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    across = table_of(batch(TOP, 3, offset=5))
    assert decide(across, batch(2)) is APPEND
    assert decide(across, batch(TOP, 3)) == Repeats(5, 1000)
    reloaded = ProducerTable.from_bytes(across.to_bytes())
    assert decide(reloaded, batch(2)) is APPEND
    assert decide(reloaded, batch(TOP, 3)) == Repeats(5, 1000)


def test_epochs() -> None:
    table = table_of(batch(0, epoch=2), batch(1, epoch=2))
    assert refusal(table, batch(2, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(table, batch(2, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert decide(table, batch(0, epoch=3)) is APPEND
    table.accept(batch(0, epoch=3, offset=50))
    assert decide(table, batch(0, epoch=3)) == Repeats(50, 1000)
    assert refusal(table, batch(2, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_do_not_mix_and_batches_without_one_leave_no_trace() -> None:
    table = table_of(batch(0, producer=1), batch(0, producer=2), batch(-1, producer=-1, epoch=-1))
    assert len(table) == 2
    assert decide(table, batch(1, producer=1)) is APPEND


def test_check_changes_nothing() -> None:
    table = table_of(batch(0))
    before = table.to_bytes()
    decide(table, batch(1))
    decide(table, batch(0))
    decide(table, batch(0, producer=99))
    assert table.to_bytes() == before


DAY_MS = 24 * 3600 * 1000
ALL = 1_000
"""A high watermark beyond all batches."""


def test_expiry_spares_the_recent_and_open_transactions() -> None:
    table = table_of(
        batch(0, producer=1),
        batch(0, producer=2),
        batch(0, producer=3, attributes=TRANSACTIONAL, offset=4),
    )
    assert table.expire(0, DAY_MS, ALL) == 0
    table.accept(batch(1, producer=2, offset=5))
    assert table.expire(DAY_MS - 1, DAY_MS, ALL) == 0
    assert table.expire(DAY_MS, DAY_MS, ALL) == 1
    assert [state.producer_id for state in table] == [3, 2]
    assert decide(table, batch(55, producer=1)) is APPEND
    assert table.expire(2 * DAY_MS - 2, DAY_MS, ALL) == 0
    assert table.expire(2 * DAY_MS - 1, DAY_MS, ALL) == 1, "found silent for the first time a day before"
    end(table, producer=3, offset=6)
    assert table.expire(9 * DAY_MS, DAY_MS, ALL) == 0, "its transaction has only just ended"
    assert table.expire(10 * DAY_MS, DAY_MS, ALL) == 1


def test_a_producer_whose_last_batch_is_not_committed_is_not_forgotten() -> None:
    table = table_of(batch(0, 5, offset=10))
    for day in range(4):
        assert table.expire(day * DAY_MS, DAY_MS, 14) == 0
    assert decide(table, batch(0, 5)) == Repeats(10, 1000)
    assert table.expire(4 * DAY_MS - 1, DAY_MS, 15) == 0, "committed for less than a day"
    assert table.expire(4 * DAY_MS, DAY_MS, 15) == 1


def test_a_producer_that_repeats_itself_is_not_silent() -> None:
    table = table_of(batch(0))
    table.expire(0, DAY_MS, ALL)
    table.heard(7)
    table.heard(8)
    assert table.expire(DAY_MS, DAY_MS, ALL) == 0
    assert table.expire(2 * DAY_MS, DAY_MS, ALL) == 1
    assert table.find(8) is None


@pytest.mark.parametrize("timestamp", [-1, 0, 1_000, 2**62])
def test_expiry_does_not_look_at_the_timestamps_of_clients(timestamp: int) -> None:
    now_ms = 1_700_000_000_000
    table = table_of(batch(0, timestamp=timestamp))
    assert table.expire(now_ms, DAY_MS, ALL) == 0
    table.accept(batch(1, timestamp=timestamp, offset=1))
    assert table.expire(now_ms + DAY_MS, DAY_MS, ALL) == 0
    assert table.expire(now_ms + 2 * DAY_MS, DAY_MS, ALL) == 1


def test_a_loaded_table_forgets_nobody_at_once() -> None:
    table = table_of(batch(0, timestamp=1))
    table.expire(0, DAY_MS, ALL)
    loaded = ProducerTable.from_bytes(table.to_bytes())
    assert loaded.expire(10 * DAY_MS, DAY_MS, ALL) == 0
    assert loaded.expire(11 * DAY_MS, DAY_MS, ALL) == 1


def test_the_longest_unused_goes_when_there_are_too_many() -> None:
    table = ProducerTable(producers_max=2)
    for header in (batch(0, producer=1), batch(0, producer=2), batch(1, producer=1), batch(0, producer=3)):
        table.accept(header)
    assert [state.producer_id for state in table] == [1, 3]


def test_producers_in_transactions_are_not_pushed_out() -> None:
    table = ProducerTable(producers_max=2)
    table.accept(batch(0, producer=1, attributes=TRANSACTIONAL))
    for producer in (2, 3, 4):
        table.accept(batch(0, producer=producer, offset=producer))
    assert [state.producer_id for state in table] == [1, 4]
    table.accept(batch(1, producer=4, offset=9, attributes=TRANSACTIONAL))
    table.accept(batch(0, producer=5, offset=10))
    assert {state.producer_id for state in table} == {1, 4, 5}, "all others have open transactions"


def test_a_snapshot_of_more_open_transactions_than_producers_are_kept_is_loaded() -> None:
    table = ProducerTable(producers_max=2)
    for producer in (1, 2, 3):
        table.accept(batch(0, producer=producer, offset=producer, attributes=TRANSACTIONAL))
    loaded = ProducerTable.from_bytes(table.to_bytes(), producers_max=2)
    assert list(loaded) == list(table)
    assert loaded.transactions.first_unstable_offset(4) == 1


def test_open_transactions_are_in_the_snapshot() -> None:
    table = table_of(
        batch(0, producer=1, offset=3, attributes=TRANSACTIONAL),
        batch(0, producer=2, offset=4),
        batch(0, producer=3, offset=5, attributes=TRANSACTIONAL),
        batch(1, producer=1, offset=6, attributes=TRANSACTIONAL),
    )
    end(table, producer=9, offset=7, commit=False)
    loaded = ProducerTable.from_bytes(table.to_bytes())
    assert list(loaded) == list(table)
    assert loaded.transactional
    assert loaded.transactions.first_unstable_offset(8) == 3
    assert end(loaded, producer=1, offset=8, commit=False) == CompletedTxn(1, 3, 8, False, 5)
    assert loaded.transactions.first_unstable_offset(8) == 3, "the marker is not committed"
    assert loaded.transactions.first_unstable_offset(9) == 5


def test_markers_are_fenced() -> None:
    table = table_of(batch(0, epoch=2, attributes=TRANSACTIONAL))

    def code(epoch: int, coordinator_epoch: int, *, bumps_epoch: bool = False) -> ErrorCode | None:
        marker = EndTxnMarker(7, epoch, True, coordinator_epoch)
        decision = admit_marker(table.find(7), marker, bumps_epoch=bumps_epoch)
        return decision.code if isinstance(decision, Refused) else None

    assert code(1, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(2, 0) is None
    assert code(2, 0, bumps_epoch=True) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert code(3, 0, bumps_epoch=True) is None
    table.accept_marker(batch(-1, offset=1, epoch=3), EndTxnMarker(7, 3, True, 4))
    assert code(3, 3) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert code(3, 4, bumps_epoch=True) is None, "the same marker again"


def test_a_marker_ends_the_transaction_and_keeps_the_numbering() -> None:
    table = table_of(batch(0, 2, offset=8, attributes=TRANSACTIONAL))
    (state,) = table
    assert state.txn_first_offset == 8
    table.accept(batch(2, offset=10, attributes=TRANSACTIONAL))
    assert state.txn_first_offset == 8
    assert end(table, offset=11) == CompletedTxn(7, 8, 11, commit=True, last_stable_offset=12)
    assert state.txn_first_offset == -1
    assert decide(table, batch(3)) is APPEND
    # A marker of a higher epoch starts the numbering anew.
    assert end(table, offset=12, epoch=1) is None
    assert decide(table, batch(0, epoch=1)) is APPEND
    assert refusal(table, batch(3, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_takes_the_numbering_back() -> None:
    table = table_of(*(batch(i * 2, 2, offset=i * 2) for i in range(8)))
    table.truncate(12)
    assert decide(table, batch(12, 2)) is APPEND
    assert decide(table, batch(10, 2)) == Repeats(10, 1000)
    table.truncate(0)
    # Six batches were forgotten and only five remembered: the numbering is known as far as that.
    assert decide(table, batch(6, 2)) is APPEND
    assert decide(ProducerTable.from_bytes(table.to_bytes()), batch(6, 2)) is APPEND


def test_truncation_takes_back_what_only_a_copy_remembers() -> None:
    table = table_of(batch(0, 2, offset=0), batch(0, producer=8, offset=2, attributes=TRANSACTIONAL))
    table.written()
    before = table.to_bytes()
    table.accept(batch(0, epoch=1, offset=3))  # a new epoch
    table.accept(batch(1, epoch=1, offset=4))
    end(table, producer=8, epoch=1, offset=5, commit=False)  # a marker that ends a transaction
    end(table, producer=8, epoch=2, offset=6)  # and one that ends nothing
    end(table, producer=9, epoch=2, offset=7)  # nor does one of a producer that is not known
    table.truncate(3)
    assert table.to_bytes() == before
    assert table.transactions.first_unstable_offset(3) == 2


@pytest.mark.parametrize("count", [1, 3, 8])
def test_no_batch_overtakes_the_first_of_a_producer_that_could_not_be_written(count: int) -> None:
    """Those behind it are on their way; the first that finds room must not become the first in the log."""
    table = table_of(*(batch(4 + number, offset=number) for number in range(count)))
    table.truncate(0)
    for late in range(5, 12):
        assert refusal(table, batch(late)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert decide(table, batch(4)) is APPEND
    assert decide(ProducerTable.from_bytes(table.to_bytes()), batch(4)) is APPEND


def test_what_was_written_before_a_write_failed_stays() -> None:
    table = table_of(batch(0, offset=0), batch(0, epoch=1, offset=1), batch(0, producer=9, offset=2))
    before = {state.producer_id: state.copy() for state in table}
    table.accept(batch(0, epoch=2, offset=3))
    table.truncate(3)
    assert {state.producer_id: state for state in table} == before


def test_the_snapshot_has_kafkas_layout() -> None:
    table = table_of(batch(4, 3, offset=20, epoch=2, timestamp=77, attributes=TRANSACTIONAL))
    entry = struct.pack(">qhiqiqiq", 7, 2, 6, 22, 2, 77, -1, 20)
    body = struct.pack(">i", 1) + entry
    assert table.to_bytes() == struct.pack(">hI", 1, crc32c(body)) + body


def test_an_empty_snapshot() -> None:
    assert len(ProducerTable.from_bytes(ProducerTable().to_bytes())) == 0


@given(data=st.data())
def test_a_damaged_snapshot_is_refused(data: st.DataObject) -> None:
    whole = bytearray(table_of(batch(0), batch(0, producer=8)).to_bytes())
    if data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del whole[data.draw(st.integers(0, len(whole) - 1)) :]
    with pytest.raises(ProtocolError):
        ProducerTable.from_bytes(bytes(whole))


def test_a_lying_count_is_refused() -> None:
    body = struct.pack(">i", 2) + bytes(46)
    with pytest.raises(ProtocolError):
        ProducerTable.from_bytes(struct.pack(">hI", 1, crc32c(body)) + body)


class Oracle:
    """The same rules, stated over the whole history of one producer."""

    def __init__(self) -> None:
        self.epoch = -1
        self.history: list[BatchHeader] = []

    def expected(self, header: BatchHeader) -> Decision | ErrorCode:
        if not self.history or header.producer_epoch > self.epoch:
            fine = not self.history or header.base_sequence == 0
            return APPEND if fine else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        for old in self.history[-5:]:
            if (old.base_sequence, old.record_count) == (header.base_sequence, header.record_count):
                return Repeats(old.base_offset, old.max_timestamp)
        following = (self.history[-1].last_sequence + 1) % 2**31
        return APPEND if header.base_sequence == following else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def accept(self, header: BatchHeader) -> None:
        if header.producer_epoch != self.epoch:
            self.epoch, self.history = header.producer_epoch, []
        self.history.append(header)


def outcome(table: ProducerTable, header: BatchHeader) -> Decision | ErrorCode:
    decision = decide(table, header)
    return decision.code if isinstance(decision, Refused) else decision


steps = st.lists(
    st.tuples(
        st.sampled_from(["next", "next", "next", "again", "any", "snapshot"]),
        st.integers(0, 2),  # epoch
        st.integers(1, 3),  # records
        st.sampled_from([0, 1, 2, 3, 5, TOP - 1, TOP]),
    ),
    max_size=30,
)


@given(start=st.sampled_from([0, 9, TOP - 2]), steps=steps)
def test_any_history_decides_as_the_oracle(start: int, steps: list[tuple[str, int, int, int]]) -> None:
    table, oracle = ProducerTable(), Oracle()
    offset = 0
    following = start
    for kind, epoch, count, sequence in steps:
        if kind == "snapshot":
            table = ProducerTable.from_bytes(table.to_bytes())
            continue
        if kind == "next":
            header = batch(following, count, epoch=max(oracle.epoch, 0), offset=offset, timestamp=offset)
        elif kind == "again" and oracle.history:
            header = oracle.history[-1 - sequence % len(oracle.history)]
        else:
            header = batch(sequence, count, epoch=epoch, offset=offset, timestamp=offset)
        expected = oracle.expected(header)
        assert outcome(table, header) == expected
        if expected is APPEND:
            header = header._replace(base_offset=offset)
            table.accept(header)
            oracle.accept(header)
            following = (header.last_sequence + 1) % 2**31
            offset += header.record_count
