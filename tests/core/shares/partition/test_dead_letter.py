"""Which dead letters go together, how a move names them, and what stands in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.shares.partition.dead_letter_headers import (
    DeadLetterBatch,
    NoCopy,
    Origin,
    below,
    dead_letter,
    first_of,
    only,
    overlap,
)
from forebay.core.shares.partition.share_partition import DeadLetters
from forebay.core.shares.partition.state_transitions import DeadLetterCause
from forebay.wire.records import Record

REJECTED, LIMIT = DeadLetterCause.REJECTED, DeadLetterCause.DELIVERY_LIMIT
LETTERS = [DeadLetters(3, 7, 1, REJECTED), DeadLetters(8, 8, 5, LIMIT), DeadLetters(20, 29, 2, REJECTED)]
ORIGIN = Origin("jobs", 4, "workers")


def offsets(letters: list[DeadLetters]) -> list[int]:
    return [offset for each in letters for offset in range(each.first, each.last + 1)]


@given(st.integers(0, 20))
def test_a_move_takes_the_first_ones(records_max: int) -> None:
    assert offsets(first_of(LETTERS, records_max)) == offsets(LETTERS)[:records_max]


@given(st.sets(st.integers(0, 35)))
def test_letters_are_cut_to_the_offsets_that_have_records(present: set[int]) -> None:
    kept = only(LETTERS, sorted(present))
    assert offsets(kept) == [offset for offset in offsets(LETTERS) if offset in present]
    for each in kept:
        (origin,) = (letter for letter in LETTERS if letter.first <= each.first <= letter.last)
        assert each[2:] == origin[2:]
        assert each.last <= origin.last


def test_ranges_are_as_long_as_they_can_be() -> None:
    assert only(LETTERS, [3, 4, 6, 7, 8]) == [
        DeadLetters(3, 4, 1, REJECTED),
        DeadLetters(6, 7, 1, REJECTED),
        DeadLetters(8, 8, 5, LIMIT),
    ]


def test_what_is_in_both() -> None:
    waiting = [DeadLetters(0, 4, 1, REJECTED), DeadLetters(7, 22, 1, REJECTED)]
    assert list(overlap(LETTERS, waiting)) == [(3, 4), (7, 7), (8, 8), (20, 22)]


def test_a_batch_is_read_as_it_was_packed() -> None:
    batch = DeadLetterBatch(6, LETTERS, 9)
    assert DeadLetterBatch.unpack(batch.pack()) == batch
    assert batch.record_count == 16


@given(st.integers(0, 35))
def test_letters_before_an_offset(end: int) -> None:
    assert offsets(below(LETTERS, end)) == [offset for offset in offsets(LETTERS) if offset < end]


def test_a_copy_has_its_own_headers_first() -> None:
    record = Record(9, 100, b"k", b"v", [("mine", b"1"), ("__dlq.errors.topic", b"an earlier one")])
    letter = dead_letter(2, 8, LETTERS[1], ORIGIN, record, 500)
    assert (letter.offset, letter.timestamp, letter.key, letter.value) == (2, 500, b"k", b"v")
    assert letter.headers == [
        ("mine", b"1"),
        ("__dlq.errors.topic", b"an earlier one"),
        ("__dlq.errors.topic", b"jobs"),
        ("__dlq.errors.partition", b"4"),
        ("__dlq.errors.offset", b"8"),
        ("__dlq.errors.group", b"workers"),
        ("__dlq.errors.delivery.count", b"5"),
        ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
    ]


def test_without_a_copy_there_are_the_headers_only() -> None:
    letter = dead_letter(0, 3, LETTERS[0], ORIGIN, NoCopy.NOT_WANTED, 500)
    assert (letter.key, letter.value, len(letter.headers)) == (None, None, 6)
    assert letter.headers[-1] == ("__dlq.errors.message", b"Offset rejected by client.")


def test_a_letter_says_why_it_has_no_copy() -> None:
    letter = dead_letter(0, 3, LETTERS[0], ORIGIN, NoCopy.DAMAGED, 500)
    assert letter.headers[-1] == (
        "__dlq.errors.message",
        b"Offset rejected by client. The record cannot be copied: its batch is damaged.",
    )
