"""Guards of transactional batches that wait for the coordinator."""

from __future__ import annotations

import pytest

from forebay.core.verification import Verifications
from forebay.errors import ErrorCode, KafkaError


def code(verifications: Verifications, guard: object, sequence: int, producer: int = 1) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        verifications.check(producer, guard, sequence)
    return caught.value.code


def test_a_guard_is_good_until_the_transaction_ends() -> None:
    verifications = Verifications()
    guard = verifications.begin(1, 0, 5)
    verifications.check(1, guard, 5)
    assert code(verifications, object(), 5) == ErrorCode.INVALID_TXN_STATE
    assert code(verifications, guard, 5, producer=2) == ErrorCode.INVALID_TXN_STATE
    verifications.ended(1, next_epoch=None)
    assert code(verifications, guard, 5) == ErrorCode.INVALID_TXN_STATE
    verifications.begin(1, 0, 5)
    assert code(verifications, guard, 5) == ErrorCode.INVALID_TXN_STATE, "of the transaction before"


def test_the_end_of_a_transaction_leaves_the_next_one_its_guards() -> None:
    """A producer that raises its epoch may be ahead of the marker, which names the epoch it has now."""
    verifications = Verifications()
    guard = verifications.begin(1, 4, 0)
    verifications.ended(1, next_epoch=4)
    verifications.check(1, guard, 0)
    verifications.ended(1, next_epoch=5)
    assert code(verifications, guard, 0) == ErrorCode.INVALID_TXN_STATE


def test_a_batch_cannot_overtake_one_whose_question_failed() -> None:
    verifications = Verifications()
    first, second = verifications.begin(1, 0, 0), verifications.begin(1, 0, 3)
    verifications.failed(1, first)
    assert code(verifications, first, 0) == ErrorCode.INVALID_TXN_STATE
    assert code(verifications, second, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    verifications.check(1, verifications.begin(1, 0, 0), 0)


def test_a_new_epoch_starts_anew() -> None:
    verifications = Verifications()
    old = verifications.begin(1, 0, 0)
    new = verifications.begin(1, 1, 7)
    verifications.check(1, new, 7)
    assert code(verifications, old, 0) == ErrorCode.INVALID_TXN_STATE


def test_questions_that_are_never_answered_do_not_pile_up() -> None:
    verifications = Verifications()
    guards = [verifications.begin(producer, 0, 0) for producer in range(1001)]
    assert code(verifications, guards[0], 0, producer=0) == ErrorCode.INVALID_TXN_STATE
    verifications.check(1, guards[1], 0)
    verifications.check(1000, guards[1000], 0)
