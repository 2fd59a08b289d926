"""Producers of folded partitions: aliases, and what a closed partition and the one that takes over decide."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from forebay.core.cluster.images.topic_folds import GENERATIONS_END
from forebay.core.partition.batch_rules import AppendPolicy, ClosedPartition, validate
from forebay.core.partition.folds.aliases import PRODUCER_IDS_END, alias_of, named_by, under_alias
from forebay.core.partition.folds.closed_partition import (
    OUT_OF_PLACE,
    PassOn,
    aliased,
    assumed_state,
    decide_closed,
    whole_header,
)
from forebay.core.partition.producers.producer_admission import APPEND, Refused, Repeats, admit
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    EndTxnMarker,
    build_batch,
    build_marker,
    crc_ok,
    read_header,
)
from forebay.wire.records import Record

PRODUCER = 7
FOLDED = 5
NOW_MS = 1_800_000_000_000


def batch_of(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = PRODUCER) -> memoryview:
    records = [Record(n, NOW_MS, None, b"%d" % (sequence + n)) for n in range(count)]
    numbers = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    return memoryview(build_batch(records, **numbers))


def header_of(sequence: int, count: int = 1, *, epoch: int = 0) -> BatchHeader:
    return read_header(batch_of(sequence, count, epoch=epoch))


# -- aliases -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("producer_id", [0, 1, PRODUCER, PRODUCER_IDS_END - 1])
def test_an_alias_says_who_sent_it_and_for_which_partition(producer_id: int) -> None:
    seen = {producer_id}
    for index in (0, 1, 2, 9_999):
        alias = alias_of(producer_id, index, 0)
        assert alias not in seen and PRODUCER_IDS_END <= alias < 2**63
        seen.add(alias)
        assert named_by(alias, 3) == (producer_id, index, 0)
        assert alias_of(alias, 4, 0) == alias, (
            "passed on again it keeps the partition that the client has named"
        )
        for generation in (1, GENERATIONS_END - 1):
            again = alias_of(alias, 4, generation)
            assert again not in seen and PRODUCER_IDS_END <= again < 2**63
            seen.add(again)
            assert named_by(again, 3) == (producer_id, index, generation)
            assert alias_of(again, 4, 0) == alias
        assert alias_of(alias, 4, None) == producer_id
    assert named_by(producer_id, 3) == (producer_id, 3, None)


def test_no_producer_no_alias() -> None:
    assert alias_of(-1, 3, 0) == -1 and named_by(-1, 3) == (-1, 3, None)
    plain = batch_of(-1, epoch=-1, producer_id=-1)
    assert bytes(under_alias(plain, read_header(plain), alias_of(-1, 3, 0))) == bytes(plain)


def test_a_batch_under_an_alias_is_a_whole_batch_and_the_original_stays() -> None:
    batch = batch_of(4, 3)
    before = bytes(batch)
    copy = under_alias(batch, read_header(batch), alias_of(PRODUCER, FOLDED, 0))
    assert bytes(batch) == before
    assert crc_ok(copy, 0, len(copy)) and copy[HEADER_SIZE:] == batch[HEADER_SIZE:]
    changed = read_header(copy)
    assert changed._replace(crc=0) == aliased(read_header(batch), FOLDED, 0)._replace(crc=0)
    assert changed.producer_id == alias_of(PRODUCER, FOLDED, 0)


# -- closed partitions -------------------------------------------------------------------------------------


def test_a_closed_partition_takes_nothing_whatever_its_size() -> None:
    closed = AppendPolicy(closed=True)
    for records in (batch_of(0), batch_of(-1, epoch=-1, producer_id=-1), batch_of(0, 1000)):
        with pytest.raises(ClosedPartition):
            validate(records, closed, NOW_MS)
    assert issubclass(ClosedPartition, KafkaError)


def test_a_damaged_batch_is_not_passed_on() -> None:
    for position in (HEADER_SIZE - 1, HEADER_SIZE + 2):
        damaged = memoryview(bytearray(batch_of(0)))
        damaged[position] ^= 1
        with pytest.raises(KafkaError):
            whole_header(damaged, NOW_MS)
    with pytest.raises(KafkaError):
        whole_header(None, NOW_MS)


class Log:
    """A partition's producers, as its leader treats their batches."""

    def __init__(self) -> None:
        self.producers = ProducerTable()
        self.end = 0
        self.stored: list[tuple[int, int]] = []

    def offer(self, header: BatchHeader, known: PassOn | None = None) -> Repeats | Refused | int:
        """As `BatchTakers.append` does it: the offset, or why not."""
        producer_id = header.producer_id
        state = self.producers.find(producer_id)
        assumed = (
            state if known is None else assumed_state(state, known, header, forgets=self.producers.forgets)
        )
        if assumed is not None and assumed is not state:
            self.producers.assume(assumed)
        decision = admit(self.producers.find(producer_id), header)
        if decision is not APPEND:
            self.producers.take_back(producer_id, state)
            assert isinstance(decision, Repeats | Refused)
            return decision
        placed = header._replace(base_offset=self.end)
        self.producers.accept(placed)
        self.end = placed.next_offset
        self.stored += [(header.producer_epoch, header.base_sequence + n) for n in range(header.record_count)]
        return placed.base_offset

    def restart(self) -> None:
        self.producers = ProducerTable.from_bytes(self.producers.to_bytes())


def outcome(old: Log, new: Log, header: BatchHeader, *, closed: bool) -> Repeats | Refused | int:
    if not closed:
        return old.offer(header)
    decision = decide_closed(old.producers.find(header.producer_id), header)
    if isinstance(decision, Refused):
        return decision
    found = new.offer(aliased(header, FOLDED, 0), decision)
    if isinstance(found, Refused) and found.code in OUT_OF_PLACE and decision.repeats is not None:
        return decision.repeats
    return found


def same(one: Repeats | Refused | int, other: Repeats | Refused | int) -> bool:
    """Whether a producer is told the same, but for the offset. Two logs remember more batches than one."""
    if isinstance(one, Refused) and one.code in OUT_OF_PLACE and isinstance(other, Repeats):
        return True
    if isinstance(one, Refused) or isinstance(other, Refused):
        return isinstance(one, Refused) and isinstance(other, Refused) and one.code == other.code
    return isinstance(one, Repeats) == isinstance(other, Repeats)


@pytest.mark.parametrize("close_at", range(7))
def test_over_the_fold_a_producer_is_told_what_it_would_be_told_without(close_at: int) -> None:
    """Every batch after every short history: a next one, a repeat, a gap, a new epoch and an old one."""
    histories = [[(0, 2), (2, 1), (3, 1)], [(0, 1)], [], [(5, 2), (7, 1)], [(n, 1) for n in range(6)]]
    probes = [(epoch, sequence, count) for epoch, sequence, count in product((0, 1), range(9), (1, 2))]
    for history, (epoch, sequence, count) in product(histories, probes):
        whole, old, new = Log(), Log(), Log()
        for number, (first, size) in enumerate(history):
            header = header_of(first, size, epoch=1)
            assert same(whole.offer(header), outcome(old, new, header, closed=number >= close_at))
        old.restart()
        new.restart()
        probe = header_of(sequence, count, epoch=epoch)
        expected, found = whole.offer(probe), outcome(old, new, probe, closed=True)
        assert same(expected, found), (history, epoch, sequence, count)
        assert old.stored + new.stored == whole.stored


@pytest.mark.parametrize("seed", range(40))
def test_random_producers_over_the_fold(seed: int) -> None:
    """Pipelined, repeated and restarted at random: each batch once, in order, refused only out of place."""
    random = Random(seed)
    old, new, further, expected = Log(), Log(), Log(), Log()
    closed = twice = False
    sequence, epoch, last = 0, 0, header_of(0)
    for _ in range(300):
        if not closed and random.random() < 0.02:
            closed = True
        elif closed and not twice and random.random() < 0.02:
            twice = True
        action = random.random()
        if action < 0.1:
            for log in (old, new, further):
                log.restart()
        if action < 0.6:
            header = header_of(sequence, random.randint(1, 3), epoch=epoch)
        elif action < 0.8:
            header = last
        elif action < 0.9:
            header = header_of(sequence + random.randint(1, 5), epoch=epoch)
        elif action < 0.93:
            epoch, sequence = epoch + 1, 0
            header = header_of(0, epoch=epoch)
        else:
            header = header_of(max(sequence - random.randint(1, 9), 0), epoch=max(epoch - 1, 0))
        wanted = expected.offer(header)
        if not twice:
            found = outcome(old, new, header, closed=closed)
        else:
            found = through_both(old, new, further, header)
        assert same(wanted, found), (seed, header, wanted, found)
        if isinstance(wanted, int):
            last, sequence = header, header.base_sequence + header.record_count
    assert old.stored + new.stored + further.stored == expected.stored


def through_both(old: Log, new: Log, further: Log, header: BatchHeader) -> Repeats | Refused | int:
    """The partition into which it was folded is folded, too."""
    first = decide_closed(old.producers.find(header.producer_id), header)
    if isinstance(first, Refused):
        return first
    passed = aliased(header, FOLDED, 0)
    second = decide_closed(new.producers.find(passed.producer_id), passed, first)
    if isinstance(second, Refused):
        return second
    found = further.offer(aliased(passed, 1, 0), second)
    if isinstance(found, Refused) and found.code in OUT_OF_PLACE and second.repeats is not None:
        return second.repeats
    return found


def test_an_old_number_that_comes_round_again_is_no_repeat() -> None:
    """After 2**31 records numbers begin again: the closed partition remembers one that is new."""
    old, new = Log(), Log()
    assert outcome(old, new, header_of(0, 2), closed=False) == 0
    passed = outcome(old, new, header_of(2, 1), closed=True)
    assert passed == 0
    state = new.producers.find(alias_of(PRODUCER, FOLDED, 0))
    assert state is not None
    state.next_sequence = 0  # as if all numbers had been used
    assert outcome(old, new, header_of(0, 2), closed=True) == 1


def test_what_was_assumed_is_taken_back_with_the_batch() -> None:
    log = Log()
    old = Log()
    old.offer(header_of(0, 3))
    decision = decide_closed(old.producers.find(PRODUCER), header_of(4))
    assert isinstance(decision, PassOn)
    refused = log.offer(aliased(header_of(4), FOLDED, 0), decision)
    assert isinstance(refused, Refused) and refused.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(log.producers) == 0
    assert log.offer(aliased(header_of(3), FOLDED, 0), decision) == 0
    log.producers.truncate(0)  # the write has failed
    state = log.producers.find(alias_of(PRODUCER, FOLDED, 0))
    assert state is not None and state.next_sequence == 3, "the batch before it may still be on its way"


def test_a_producer_that_was_forgotten_for_others_may_go_on() -> None:
    """The other partition has had too many producers, and the closed one remembers an older number."""
    old, new = Log(), Log()
    new.producers = ProducerTable(producers_max=2)
    for sequence in range(3):
        assert outcome(old, new, header_of(sequence), closed=False) == sequence
    assert outcome(old, new, header_of(3), closed=True) == 0
    for other in (1, 2):
        new.offer(read_header(batch_of(0, producer_id=PRODUCER + other)))
    assert new.producers.find(alias_of(PRODUCER, FOLDED, 0)) is None
    new.restart()
    new.producers.forgets = True  # the table may not be full any more, but it was
    assert isinstance(outcome(old, new, header_of(1), closed=True), Repeats)
    assert outcome(old, new, header_of(4), closed=True) == 3
    assert isinstance(outcome(old, new, header_of(6), closed=True), Refused)


def test_a_table_that_was_full_says_that_it_has_forgotten_producers() -> None:
    table = ProducerTable(producers_max=2)
    for number in range(3):
        assert not table.forgets
        table.accept(read_header(batch_of(0, producer_id=number))._replace(base_offset=number))
    assert table.forgets
    assert ProducerTable.from_bytes(table.to_bytes(), producers_max=2).forgets
    assert not ProducerTable.from_bytes(table.to_bytes(), producers_max=3).forgets


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_marker_does_not_hide_the_numbers_of_the_closed_partition(epoch: int) -> None:
    """A transaction that was open over the fold has its marker in the other log before any batch."""
    old, new = Log(), Log()
    old.offer(header_of(0, 3))
    alias = alias_of(PRODUCER, FOLDED, 0)
    marker = EndTxnMarker(alias, epoch, True, 0)
    new.producers.accept_marker(read_header(build_marker(marker, timestamp=NOW_MS)), marker)
    new.restart()
    if epoch:  # the marker has begun the next epoch
        assert isinstance(outcome(old, new, header_of(3, epoch=0), closed=True), Refused)
        assert isinstance(outcome(old, new, header_of(1, epoch=1), closed=True), Refused)
        assert outcome(old, new, header_of(0, epoch=1), closed=True) == 0
    else:
        assert isinstance(outcome(old, new, header_of(4), closed=True), Refused)
        assert outcome(old, new, header_of(3), closed=True) == 0
        assert outcome(old, new, header_of(4), closed=True) == 1
        assert isinstance(outcome(old, new, header_of(0, 3), closed=True), Repeats)
