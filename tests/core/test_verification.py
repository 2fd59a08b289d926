"""Guards of transactional batches that wait for the coordinator."""

from __future__ import annotations

from forebay.core.verification import Verifications


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
    verifications.failed(1, first)
    assert verifications.verified_from(1, first) is None
    assert verifications.verified_from(1, second) == 0, "what was asked for first comes first"
    assert verifications.verified_from(1, verifications.begin(1, 0, 0)) == 0


def test_a_new_epoch_starts_anew() -> None:
    verifications = Verifications()
    old = verifications.begin(1, 0, 0)
    new = verifications.begin(1, 1, 7)
    assert verifications.verified_from(1, new) == 7
    assert verifications.verified_from(1, old) is None


def test_questions_that_are_never_answered_do_not_pile_up() -> None:
    verifications = Verifications()
    guards = [verifications.begin(producer, 0, 0) for producer in range(1001)]
    assert verifications.verified_from(0, guards[0]) is None
    assert verifications.verified_from(1, guards[1]) == 0
    assert verifications.verified_from(1000, guards[1000]) == 0
