"""The shadows of messages and of keyed values: what they let pass, and what they do not."""

from __future__ import annotations

import pytest

from forebay.sim.models.facts import Sent, Transaction, TransactionOutcome
from forebay.sim.models.keyed import KeyedValues, Write
from forebay.sim.models.messages import Model

AT = ("keyed", 0)
KEY = b"key"


@pytest.fixture
def breaches() -> list[str]:
    return []


@pytest.fixture
def keyed(breaches: list[str]) -> KeyedValues:
    return KeyedValues(breaches.append)


def write(
    keyed: KeyedValues, value: bytes, offset: int | None, transaction: Transaction | None = None
) -> None:
    keyed.send(AT, KEY, Write(value=value, offset=offset, transaction=transaction))


# -- keyed values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [(5, b"told"), (9, b"perhaps")])
def test_the_last_value_or_one_that_nobody_confirmed_is_fine(
    keyed: KeyedValues, breaches: list[str], found: tuple[int, bytes]
) -> None:
    write(keyed, b"before", 2)
    write(keyed, b"told", 5)
    write(keyed, b"perhaps", None)
    keyed.finish(AT, {KEY: found})
    assert not breaches


@pytest.mark.parametrize("found", [None, (2, b"before"), (5, b"before"), (7, b"told"), (9, b"made up")])
def test_a_value_that_is_gone_or_older_or_never_written_is_a_breach(
    keyed: KeyedValues, breaches: list[str], found: tuple[int, bytes] | None
) -> None:
    write(keyed, b"before", 2)
    write(keyed, b"told", 5)
    keyed.finish(AT, {} if found is None else {KEY: found})
    assert len(breaches) == 1


@pytest.mark.parametrize("found", [None, (5, b"")])
def test_a_deleted_key_may_be_there_as_deleted_or_not_at_all(
    keyed: KeyedValues, breaches: list[str], found: tuple[int, bytes] | None
) -> None:
    write(keyed, b"before", 2)
    write(keyed, b"", 5)
    keyed.finish(AT, {} if found is None else {KEY: found})
    assert not breaches
    keyed.finish(AT, {KEY: (2, b"before")})
    assert len(breaches) == 1


def test_what_was_aborted_is_never_the_last_value(keyed: KeyedValues, breaches: list[str]) -> None:
    aborted = Transaction("t", TransactionOutcome.ABORTED)
    write(keyed, b"told", 2)
    write(keyed, b"taken back", 5, aborted)
    keyed.finish(AT, {KEY: (2, b"told")})
    assert not breaches
    keyed.finish(AT, {KEY: (5, b"taken back")})
    assert len(breaches) == 1


def test_what_was_committed_replaces_what_was_before(keyed: KeyedValues, breaches: list[str]) -> None:
    transaction = Transaction("t", TransactionOutcome.COMMIT_ASKED)
    write(keyed, b"told", 2)
    write(keyed, b"newer", 5, transaction)
    for found in ((2, b"told"), (5, b"newer")):
        keyed.finish(AT, {KEY: found})
    assert not breaches
    transaction.outcome = TransactionOutcome.COMMITTED
    keyed.finish(AT, {KEY: (2, b"told")})
    assert len(breaches) == 1


def test_a_key_that_nobody_wrote_is_a_breach(keyed: KeyedValues, breaches: list[str]) -> None:
    keyed.finish(AT, {b"other": (1, b"value")})
    assert len(breaches) == 1


# -- messages ----------------------------------------------------------------------------------------------


def model_with(breaches: list[str], value: bytes, transaction: Transaction | None) -> Model:
    model = Model(breaches.append, [])
    sent = Sent(at=AT, producer="p", number=1, exactly_once=transaction is None, transaction=transaction)
    model.send(value, sent)
    return model


@pytest.mark.parametrize("transaction", [None, Transaction("t", TransactionOutcome.COMMITTED)])
def test_a_message_that_is_seen_twice_is_a_breach(
    breaches: list[str], transaction: Transaction | None
) -> None:
    model = model_with(breaches, b"value", transaction)
    model.finish({AT: {0: b"value"}}, {AT: {0: b"value"}}, {})
    assert not breaches
    model.finish({AT: {0: b"value", 1: b"value"}}, {AT: {0: b"value", 1: b"value"}}, {})
    assert any("visible 2 times" in breach for breach in breaches)


def test_an_acknowledged_message_of_a_committed_transaction_has_to_be_there(breaches: list[str]) -> None:
    """What the broker says of a batch that it takes for a repeat of another one."""
    first, second = (
        Transaction("1", TransactionOutcome.ABORTED),
        Transaction("2", TransactionOutcome.COMMITTED),
    )
    model = model_with(breaches, b"aborted", first)
    model.send(b"lost", Sent(at=AT, producer="p", number=2, exactly_once=False, transaction=second))
    model.acknowledge(b"lost", 0)
    model.finish({AT: {0: b"aborted"}}, {AT: {}}, {})
    assert any("lost" in breach for breach in breaches)
