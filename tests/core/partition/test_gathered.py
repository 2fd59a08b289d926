"""Numbers of producers that a partition gathers from another, when it takes messages again."""

from __future__ import annotations

import pytest

from forebay.broker.partition.producer_replay import accept_batch
from forebay.core.partition.folds.aliases import alias_of
from forebay.core.partition.folds.gathered import gathered_from, is_news, seeds
from forebay.core.partition.producers.producer_admission import APPEND, VERIFY, Refused, Repeats, admit
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import ErrorCode
from forebay.wire.batch import (
    SEQUENCE_MASK,
    TRANSACTIONAL,
    BatchHeader,
    EndTxnMarker,
    build_batch,
    build_marker,
    crc_ok,
    read_header,
)
from forebay.wire.records import Record

PRODUCER = 7
NAMED = 5
ALIAS = alias_of(PRODUCER, NAMED, 0)
NOW_MS = 1_800_000_000_000


def header_of(
    sequence: int, count: int = 2, *, epoch: int = 0, producer_id: int = PRODUCER, attributes: int = 0
) -> BatchHeader:
    records = [Record(n, NOW_MS, None, b"%d" % (sequence + n)) for n in range(count)]
    return read_header(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=attributes,
        )
    )


class Log:
    """A partition's producers, fed with what its log gets."""

    def __init__(self) -> None:
        self.producers = ProducerTable()
        self.end = 0

    def append(self, header: BatchHeader) -> None:
        self.producers.accept(header._replace(base_offset=self.end))
        self.end += header.last_offset_delta + 1

    def seed(self, batch: bytearray) -> None:
        """As a replica or a recovery learns of it, too."""
        header = read_header(batch)
        assert crc_ok(batch, 0, len(batch)) and header.record_count == 0
        accept_batch(self.producers, memoryview(batch), header._replace(base_offset=self.end))
        self.end += header.last_offset_delta + 1

    def end_transaction(self, producer_id: int = PRODUCER, epoch: int = 0) -> None:
        marker = EndTxnMarker(producer_id, epoch, True, 0)
        header = read_header(build_marker(marker, timestamp=NOW_MS))
        self.producers.accept_marker(header._replace(base_offset=self.end), marker)
        self.end += 1

    def gather(self, source: Log, *, up_to: int | None = None) -> int:
        """How many batches were written."""
        state = source.producers.find(ALIAS)
        assert state is not None
        made = seeds(self.producers.find(PRODUCER), gathered_from(state, PRODUCER), now_ms=0)
        for batch in made[:up_to]:
            self.seed(batch)
        return len(made)

    def decide(self, header: BatchHeader) -> object:
        return admit(self.producers.find(PRODUCER), header)


def numbers(log: Log) -> list[tuple[int, int]]:
    state = log.producers.find(PRODUCER)
    assert state is not None
    return [(batch.base_sequence, batch.last_sequence) for batch in state.batches]


@pytest.mark.parametrize("start", [0, SEQUENCE_MASK - 6])
@pytest.mark.parametrize("batches", [1, 3, 5, 9])
def test_numbers_go_on_and_what_is_sent_again_is_known(start: int, batches: int) -> None:
    home, source = Log(), Log()

    def sequence(number: int) -> int:
        return (start + 2 * number) & SEQUENCE_MASK

    for number in range(4):
        home.append(header_of(sequence(number)))
    for number in range(4, 4 + batches):
        source.append(header_of(sequence(number), producer_id=ALIAS))
    home.gather(source)
    for number in range(batches + 4 - 5, batches + 4):
        assert isinstance(home.decide(header_of(sequence(number))), Repeats)
    after = header_of(sequence(batches + 4))
    assert home.decide(after) is APPEND
    for number in (batches + 5, batches - 2):
        assert isinstance(home.decide(header_of(sequence(number))), Refused)
    home.append(after)
    assert isinstance(home.decide(after), Repeats)


def test_what_was_written_before_a_leader_failed_is_completed() -> None:
    for done in range(4):
        home, source = Log(), Log()
        home.append(header_of(0))
        for sequence in (2, 4, 6):
            source.append(header_of(sequence, producer_id=ALIAS))
        home.gather(source, up_to=done)
        again = home.gather(source)
        assert bool(again) is (done < 3)
        assert home.gather(source) == 0
        assert numbers(home)[-3:] == [(2, 3), (4, 5), (6, 7)]
        assert home.decide(header_of(8)) is APPEND


def test_a_producer_that_has_sent_nothing_since_keeps_its_numbers() -> None:
    """The other partition has a marker of its transaction at most."""
    home, source = Log(), Log()
    home.append(header_of(0))
    source.end_transaction(ALIAS)
    assert home.gather(source) == 0
    assert home.decide(header_of(2)) is APPEND


def test_a_later_epoch_is_known_and_an_earlier_one_does_no_harm() -> None:
    home, source = Log(), Log()
    home.append(header_of(0))
    source.end_transaction(ALIAS, epoch=3)
    assert home.gather(source) == 1
    refused = home.decide(header_of(2))
    assert isinstance(refused, Refused) and refused.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert home.decide(header_of(0, epoch=3)) is APPEND
    home.append(header_of(0, epoch=4))
    assert home.gather(source) == 0
    source.append(header_of(0, epoch=3, producer_id=ALIAS))
    assert home.gather(source) == 0


def test_a_transaction_goes_on_where_its_next_batch_is_stored() -> None:
    """A batch that is sent again is one of its own, whose bytes nobody knows any more."""
    home, source = Log(), Log()
    home.append(header_of(0))
    source.append(header_of(2, producer_id=ALIAS))
    for sequence in (4, 6):
        source.append(header_of(sequence, producer_id=ALIAS, attributes=TRANSACTIONAL))
    assert home.gather(source) == 3
    assert home.producers.in_transaction(PRODUCER, 0)
    for sequence in (4, 6):
        assert isinstance(home.decide(header_of(sequence, attributes=TRANSACTIONAL)), Repeats)
    before = home.decide(header_of(2, attributes=TRANSACTIONAL))
    assert isinstance(before, Refused) and before.code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert home.decide(header_of(8, attributes=TRANSACTIONAL)) is APPEND
    source.end_transaction(ALIAS)
    assert home.gather(source) == 0, "its marker comes to both"
    home.end_transaction()
    assert not len(home.producers.transactions)
    assert home.decide(header_of(8, attributes=TRANSACTIONAL)) is VERIFY


def test_a_transaction_that_has_ended_is_not_opened_again() -> None:
    home, source = Log(), Log()
    source.append(header_of(0, producer_id=ALIAS, attributes=TRANSACTIONAL))
    source.end_transaction(ALIAS)
    assert home.gather(source) == 1
    assert not len(home.producers.transactions)
    assert home.decide(header_of(2, attributes=TRANSACTIONAL)) is VERIFY


def test_what_a_closed_partition_knew_is_news_only_where_nothing_came_since() -> None:
    """A partition that has taken over for a while must not go back to numbers of before."""
    closed, home = Log(), Log()
    for number in range(3):
        closed.append(header_of(2 * number, epoch=1))
    state = closed.producers.find(PRODUCER)
    assert state is not None
    handed = gathered_from(state, PRODUCER)

    def is_told() -> bool:
        return is_news(home.producers.find(PRODUCER), handed)

    assert is_told()
    home.end_transaction(epoch=1)
    assert is_told(), "a marker has no number"
    for batch in seeds(home.producers.find(PRODUCER), handed, now_ms=0):
        home.seed(batch)
    assert numbers(home) == [(0, 1), (2, 3), (4, 5)] and not is_told()
    home.append(header_of(6, epoch=1))
    assert not is_told()
    other = Log()
    other.append(header_of(0, epoch=0, attributes=TRANSACTIONAL))
    assert not is_news(other.producers.find(PRODUCER), handed), "its transaction ends first"
    other.end_transaction(epoch=0)
    assert is_news(other.producers.find(PRODUCER), handed)
