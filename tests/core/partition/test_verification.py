"""Guards of transactional batches that wait for the coordinator."""

from __future__ import annotations

import pytest

from forebay.broker.produce.transaction_verification import COME_BACK
from forebay.core.partition.transaction_verification import Verifications
from forebay.errors import KafkaError


def test_a_guard_is_good_until_the_transaction_ends() -> None:
    verifications = Verifications()
    guard = verifications.begin(1, 0, 5)
    assert verifications.verified_from(1, guard) == 5
    assert verifications.verified_from(1, object()) is None
    assert verifications.verified_from(2, guard) is None
    verifications.ended(1, next_epoch=None)
    assert verifications.verified_from(1, guard) is None
    verifications.begin(1, 0, 5)
    assert verifications.verified_from(1, guard) is None, "of the transaction before"


def test_the_end_of_a_transaction_leaves_the_next_one_its_guards() -> None:
    """A producer that raises its epoch may be ahead of the marker, which names the epoch it has now."""
    verifications = Verifications()
    guard = verifications.begin(1, 4, 0)
    verifications.ended(1, next_epoch=4)
    assert verifications.verified_from(1, guard) == 0
    verifications.ended(1, next_epoch=5)
    assert verifications.verified_from(1, guard) is None


def test_a_batch_cannot_overtake_one_whose_question_failed() -> None:
    verifications = Verifications()
    first, second = verifications.begin(1, 0, 0), verifications.begin(1, 0, 3)
    verifications.release(1, first)
    assert verifications.verified_from(1, first) is None
    assert verifications.verified_from(1, second) == 0, "what was asked for first comes first"
    assert verifications.verified_from(1, verifications.begin(1, 0, 0)) == 0


def test_a_new_epoch_starts_anew() -> None:
    verifications = Verifications()
    old = verifications.begin(1, 0, 0)
    new = verifications.begin(1, 1, 7)
    assert verifications.verified_from(1, new) == 7
    assert verifications.verified_from(1, old) is None


def test_a_zombie_does_not_take_the_guard_of_its_successor() -> None:
    verifications = Verifications()
    successor = verifications.begin(1, 5, 0)
    with pytest.raises(KafkaError) as refused:
        verifications.begin(1, 4, 0)
    assert refused.value.code in COME_BACK
    assert verifications.verified_from(1, successor) == 0
    verifications.release(1, successor)
    verifications.begin(1, 4, 0)  # nobody can tell a zombie from a stranger who claims a later epoch


def test_what_was_asked_for_first_is_remembered_when_its_question_is_over() -> None:
    verifications = Verifications()
    verifications.release(1, verifications.begin(1, 0, 0))
    assert len(verifications) == 0
    assert verifications.verified_from(1, verifications.begin(1, 0, 3)) == 0
    verifications.ended(1, next_epoch=None)
    assert verifications.verified_from(1, verifications.begin(1, 0, 3)) == 3


def test_a_question_that_is_over_is_forgotten_when_the_transaction_ends() -> None:
    verifications = Verifications()
    verifications.release(1, verifications.begin(1, 0, 0))
    verifications.ended(1, next_epoch=None)
    assert verifications.verified_from(1, verifications.begin(1, 0, 3)) == 3


def test_too_many_questions_at_once_are_refused_with_a_code_to_come_again() -> None:
    verifications = Verifications(producers_max=3)
    guards = [verifications.begin(producer, 0, 0) for producer in range(3)]
    with pytest.raises(KafkaError) as caught:
        verifications.begin(3, 0, 0)
    assert caught.value.code in COME_BACK
    again = verifications.begin(0, 0, 1)
    for producer, guard in [*enumerate(guards), (0, again)]:
        assert verifications.verified_from(producer, guard) == 0, "nobody else has lost his place"
    verifications.release(1, guards[1])
    guard = verifications.begin(3, 0, 5)
    assert verifications.verified_from(3, guard) == 0, "it was asked for when there was no room"


def test_questions_that_are_over_do_not_pile_up() -> None:
    verifications = Verifications(producers_max=3)
    for producer in range(100):
        verifications.release(producer, verifications.begin(producer, 0, 0))
    for producer in range(100):
        guard = verifications.begin(producer, 0, 9)
        assert verifications.verified_from(producer, guard) == (0 if producer >= 97 else 9)
        verifications.ended(producer, next_epoch=None)


def test_a_producer_that_asks_again_and_again_leaves_no_guards() -> None:
    verifications = Verifications()
    held = verifications.begin(1, 0, 0)
    for _ in range(100):
        verifications.release(1, verifications.begin(1, 0, 0))
    assert len(verifications) == 1
    verifications.release(1, held)
    assert len(verifications) == 0
