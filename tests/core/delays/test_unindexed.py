"""What a leader remembers of notes that its index has not read yet."""

from __future__ import annotations

import pytest

from forebay.core.delays import unindexed
from forebay.core.delays.unindexed import UnindexedNotes
from forebay.wire.state.delay_notes import Waiting

START = 100


def message(id_: int, key: bytes | None = None) -> Waiting:
    return Waiting(id_, 0, 0, 0, key, b"")


def test_what_a_note_ends_is_known_until_the_index_has_it() -> None:
    notes = UnindexedNotes(START)
    assert notes.wait_for == notes.last_offset == START
    notes.appended(110, keys=[b"k"], ids=[7], waiting=1)
    notes.appended(120, keys=[b"k"], waiting=1)
    assert (notes.messages, notes.last_offset) == (2, 120)
    assert notes.ends(message(3, b"k")) and notes.ends(message(7)) and not notes.ends(message(8, b"other"))
    notes.indexed(119)
    assert notes.ends(message(3, b"k")) and not notes.ends(message(7))
    notes.indexed(120)
    assert not notes.ends(message(3, b"k"))
    assert notes.messages == 0 and notes.wait_for == START


def test_the_notes_of_a_transaction_count_from_its_marker_on() -> None:
    notes = UnindexedNotes(START)
    notes.appended(110, keys=[b"k"], waiting=2, producer_id=1)
    notes.appended(115, ids=[7], producer_id=2)
    assert not notes.ends(message(3, b"k")) and notes.messages == 2
    notes.indexed(115)
    notes.ended(120, 1, 109, commit=True)
    notes.ended(121, 2, 114, commit=False)
    assert notes.ends(message(3, b"k")) and not notes.ends(message(7))
    assert notes.wait_for == START, "all of it is remembered"
    notes.indexed(121)
    assert not notes.ends(message(3, b"k")) and notes.messages == 0


def test_delivery_waits_for_transactions_that_began_before_the_term() -> None:
    notes = UnindexedNotes(START)
    notes.ended(120, 1, 90, commit=False)
    assert notes.wait_for == START
    notes.ended(130, 2, 90, commit=True)
    assert notes.wait_for == 130
    notes.ended(140, 3, 125, commit=True)
    notes.ended(141, 4, None, commit=True)
    assert notes.wait_for == 130, "these are remembered from their beginning"


def test_delivery_waits_when_there_is_too_much_to_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unindexed, "_REMEMBERED_MAX", 3)
    notes = UnindexedNotes(START)
    notes.appended(110, keys=[b"a", b"b"], waiting=2)
    notes.appended(112, keys=[b"c"], waiting=1, producer_id=1)
    notes.appended(120, keys=[b"d"], waiting=1)
    assert notes.wait_for == 120
    assert not notes.ends(message(1, b"a"))
    notes.ended(130, 1, 111, commit=True)
    assert notes.wait_for == 130, "what it had noted is forgotten"
    notes.indexed(130)
    assert notes.messages == 0


def test_what_is_remembered_has_a_bound_while_the_index_does_not_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unindexed, "_EFFECTS_APART", 10)
    monkeypatch.setattr(unindexed, "_REMEMBERED_MAX", 5)
    notes, offset = UnindexedNotes(START), START
    for _ in range(1_000):
        notes.appended(offset + 1, waiting=1)
        notes.appended(offset + 2, waiting=1, producer_id=7)
        notes.appended(offset + 3, keys=[b"k"], waiting=1)
        offset += 3
    assert notes.messages >= 2_000, "of open transactions not all may be counted"
    assert len(notes._effects) <= 10 + 2 * 6 and sum(map(len, notes._open.values())) <= 1
    notes.ended(offset + 1, 7, START + 1, commit=True)
    notes.indexed(offset + 1)
    assert (notes.messages, len(notes._effects)) == (0, 0)
