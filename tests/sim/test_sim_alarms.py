"""The model of messages that each wait for their own time."""

from __future__ import annotations

import pytest

from forebay.sim.models.alarms import Alarms, Sending
from forebay.sim.models.facts import Transaction, TransactionOutcome

DUE = 1_000


@pytest.fixture
def breaches() -> list[str]:
    return []


@pytest.fixture
def model(breaches: list[str]) -> Alarms:
    return Alarms(breaches.append)


def test_a_message_is_read_once_and_not_before_its_time(model: Alarms, breaches: list[str]) -> None:
    model.schedule(b"a", DUE, None, None)
    model.acknowledge(b"a", DUE)
    assert model.missing() == [b"a"]
    model.read("reader", b"a", 7, DUE)
    model.read("reader", b"a", 7, DUE)
    assert not breaches and not model.missing()
    model.read("reader", b"a", 8, DUE)
    model.read("reader", b"x", 9, DUE)
    model.schedule(b"b", DUE, None, None)
    model.read("reader", b"b", 10, DUE - 1)
    twice, unknown, early = breaches
    assert "already" in twice and "nobody" in unknown and "1 ms before" in early


@pytest.mark.parametrize("known_ms", [DUE - 1, DUE])
def test_messages_that_came_in_time_are_read_in_the_order_of_their_times(
    model: Alarms, breaches: list[str], known_ms: int
) -> None:
    for value, due_ms in ((b"a", DUE + 2), (b"b", DUE), (b"c", DUE + 1)):
        model.schedule(value, due_ms, None, None)
        model.acknowledge(value, known_ms)
    model.read("reader", b"a", 9, DUE + 2)
    model.read("reader", b"c", 8, DUE + 2)
    assert not breaches
    model.read("reader", b"b", 10, DUE + 2)
    model.read("another", b"b", 10, DUE + 2)
    assert len(breaches) == (known_ms < DUE), "otherwise it may have come when the others had been delivered"


def test_what_was_cancelled_in_time_is_not_read(model: Alarms, breaches: list[str]) -> None:
    model.schedule(b"early", DUE, b"k", None)
    model.acknowledge(b"early", DUE)
    model.ended(model.schedule(b"late", DUE, b"k", None), DUE - 1)
    model.acknowledge(b"late", DUE)
    model.ended(model.end(b"k"), DUE)
    assert model.missing() == [], "both may be ended"
    model.read("reader", b"late", 1, DUE)
    assert not breaches
    model.read("reader", b"early", 2, DUE)
    assert "in time" in breaches[0]


def test_what_was_not_acknowledged_may_come_after_what_ends_it(model: Alarms, breaches: list[str]) -> None:
    model.schedule(b"lost", DUE, b"k", None)
    model.ended(model.end(b"k"), DUE - 1)
    model.read("reader", b"lost", 1, DUE)
    assert not breaches


@pytest.mark.parametrize(
    ("outcome", "must"), [(TransactionOutcome.COMMITTED, True), (TransactionOutcome.COMMIT_ASKED, False)]
)
def test_a_transaction_counts_when_it_is_committed(
    model: Alarms, breaches: list[str], outcome: TransactionOutcome, must: bool
) -> None:
    transaction = Transaction("t")
    model.schedule(b"a", DUE, None, transaction)
    model.acknowledge(b"a", DUE)
    model.saw_uncommitted("reader", b"a")
    assert "open" in breaches[0]
    transaction.outcome = outcome
    assert bool(model.missing()) is must
    model.saw_uncommitted("reader", b"a")
    assert len(breaches) == 1


def test_what_is_under_way_may_end_what_is_sent_after_it(model: Alarms, breaches: list[str]) -> None:
    sending, transaction = Sending(), Transaction("t")
    model.end(b"k", sending)
    model.schedule(b"a", DUE, b"k", None, Sending())
    model.acknowledge(b"a", DUE)
    assert model.missing() == [], "the other batch may come behind it"
    sending.acknowledged = True
    model.end(b"l", Sending(transaction))
    model.schedule(b"b", DUE, b"l", None, Sending(acknowledged=True))
    model.acknowledge(b"b", DUE)
    assert model.missing() == [], "the transaction may be committed behind it"
    transaction.outcome = TransactionOutcome.ABORTED
    model.schedule(b"c", DUE, b"l", None, Sending(acknowledged=True))
    model.acknowledge(b"c", DUE)
    assert model.missing() == [b"c"]
    assert not breaches


def test_a_transaction_ends_what_was_sent_before_its_commit(model: Alarms, breaches: list[str]) -> None:
    model.end(b"k", Sending(Transaction("t")))
    model.schedule(b"a", DUE, b"k", None, Sending())
    assert model.waiting_under([b"k"]) == [], "it may come behind the commit"
    model.acknowledge(b"a", DUE)
    model.ended(model.waiting_under([b"k", b"l"]), DUE - 1)
    model.read("reader", b"a", 1, DUE)
    assert "in time" in breaches[0]


def test_what_was_deleted_before_it_was_read_is_not_missed(model: Alarms) -> None:
    for value, due_ms in ((b"a", DUE), (b"b", DUE + 1)):
        model.schedule(value, due_ms, None, None)
        model.acknowledge(value, DUE)
    model.skipped(DUE)
    assert model.missing() == [b"b"]


def test_what_an_administrator_cancels_or_fires_is_known(model: Alarms, breaches: list[str]) -> None:
    for number, value in enumerate((b"fired", b"cancelled", b"asked", b"late")):
        model.schedule(value, DUE, None, None)
        model.acknowledge(value, DUE - 5, number)
    assert [value for _, value in model.waiting_at(DUE - 1)] == [b"fired", b"cancelled", b"asked", b"late"]
    assert model.waiting_at(DUE) == []
    for value in (b"fired", b"asked", b"late"):
        model.altering(value, fire=True)
    model.altering(b"cancelled", fire=False)
    model.altered(b"fired", DUE - 1, fire=True)
    model.altered(b"late", DUE, fire=True)
    model.altered(b"cancelled", DUE - 1, fire=False)
    assert model.missing() == [b"fired", b"asked", b"late"]
    model.read("reader", b"asked", 1, DUE, DUE)
    model.read("reader", b"late", 2, DUE, DUE)
    model.read("another", b"fired", 3, DUE - 3, DUE - 3)
    assert not breaches and not model.missing()
    model.read("reader", b"fired", 3, DUE, DUE)
    model.read("reader", b"cancelled", 4, DUE)
    late, ended = breaches
    assert "at its time" in late and "in time" in ended
