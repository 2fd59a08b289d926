"""The model of dead letters: which it asks for, and which it does not let pass."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from forebay.core.shares.partition.dead_letter_headers import Origin, dead_letter
from forebay.core.shares.partition.share_partition import DeadLetters
from forebay.core.shares.partition.state_transitions import DeadLetterCause
from forebay.sim.models.dead_letters import Letter, wrong_letters
from forebay.sim.models.share_records import Fate, ShareRules
from forebay.wire.records import Record

PLACE = (("jobs", 0), 7)
CONTENT = {("jobs", 0): {7: b"work"}}
RULES = ShareRules(lock_ms=1_000, delivery_limit=3, backoff_ms=0, has_dead_letters=True, copies_records=True)
ACCEPTED = Fate(may_be_accepted=True, may_be_given_up=False, dead_letters_max=1)
GIVEN_UP = Fate(may_be_accepted=False, may_be_given_up=True, dead_letters_max=1)
EITHER = Fate(may_be_accepted=True, may_be_given_up=True, dead_letters_max=1)
LETTER = Letter(PLACE, "workers", 2, "Offset rejected by client.", b"work")


def wrong(letters: Sequence[Letter], fate: Fate) -> list[str]:
    return list(wrong_letters(letters, {PLACE: fate}, CONTENT, "workers", RULES))


@pytest.mark.parametrize(("fate", "count"), [(ACCEPTED, 0), (GIVEN_UP, 1), (EITHER, 0), (EITHER, 1)], ids=str)
def test_what_was_given_up_is_there_once(fate: Fate, count: int) -> None:
    assert not wrong([LETTER] * count, fate)


@pytest.mark.parametrize(
    ("fate", "count"), [(ACCEPTED, 1), (GIVEN_UP, 0), (GIVEN_UP, 2), (EITHER, 2)], ids=str
)
def test_lost_doubled_and_unwanted_dead_letters_are_found(fate: Fate, count: int) -> None:
    assert wrong([LETTER] * count, fate)


@pytest.mark.parametrize(
    "letter",
    [
        LETTER._replace(place=(("jobs", 1), 7)),
        LETTER._replace(group="others"),
        LETTER._replace(deliveries=4),
        LETTER._replace(reason=""),
        LETTER._replace(value=b"other"),
    ],
    ids=str,
)
def test_the_letter_names_its_record(letter: Letter) -> None:
    assert wrong([letter], EITHER)


def test_a_dead_letter_is_read_from_its_headers() -> None:
    given_up = DeadLetters(7, 7, 2, DeadLetterCause.REJECTED)
    record = dead_letter(0, 7, given_up, Origin("jobs", 0, "workers"), Record(7, 0, None, b"work"), 0)
    assert Letter.read(record) == LETTER
    with pytest.raises(ValueError, match="headers"):
        Letter.read(Record(0, 0, None, b"work"))
