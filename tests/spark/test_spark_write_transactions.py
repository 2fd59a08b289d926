"""The exactly-once protocol against a real broker: dying anywhere, two drivers, rows that timed out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Protocol
from unittest.mock import patch
from uuid import uuid4

import pytest

from forebay.errors import ForebayError
from forebay.spark import exactly_once
from forebay.spark.transactions import Decision, Ledger, Participant
from forebay.testing import Broker
from spark_writing import Died, Query, committed, wait_until_closed
from wire_client import WireClient, create

TASKS = 2
BATCHES = 2


class MakeQuery(Protocol):
    def __call__(self, batches: int = BATCHES, **options: int) -> Query: ...


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with Broker(process=True, settings=settings) as running:
        yield running.bootstrap_servers


@pytest.fixture
def query(bootstrap: str) -> Iterator[MakeQuery]:
    made: list[Query] = []

    def make(batches: int = BATCHES, **options: int) -> Query:
        topic = f"sink-{uuid4()}"
        with WireClient(bootstrap) as client:
            create(client, topic, 2)
        rows = [
            [[b"%d/%d/%d" % (batch, task, n) for n in range(20)] for task in range(TASKS)]
            for batch in range(batches)
        ]
        made.append(Query(bootstrap, topic, rows, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def check_once(wanted: Query) -> None:
    """Every row is there once, and no transaction holds readers up."""
    bootstrap, topic = wanted.options.bootstrap, wanted.options.topic
    assert topic is not None
    rows = sorted(value for batch in wanted.rows for task in batch for value in task)
    wait_until_closed(bootstrap, topic)
    assert committed(bootstrap, topic) == rows


# -- dying --------------------------------------------------------------------------------------------------


def test_dying_at_any_exchange_with_a_broker_leaves_each_row_once(bootstrap: str, query: MakeQuery) -> None:
    undisturbed = query(batches=1)
    first = undisturbed.run()
    assert first.to_the_end()
    check_once(undisturbed)

    for step in range(1, first.mortality.steps + 1):
        wanted = query(batches=1)
        assert not wanted.run(dies_at=step).to_the_end()
        assert wanted.run().to_the_end()
        check_once(wanted)


@pytest.mark.parametrize("seed", range(8))
def test_dying_again_and_again_leaves_each_row_once(query: MakeQuery, seed: int) -> None:
    chance = random.Random(seed)
    wanted = query(batches=3)
    while not wanted.run(dies_at=chance.randint(5, 90)).to_the_end():
        pass
    check_once(wanted)


def test_nothing_is_visible_before_the_decision_and_everything_after_it_in_the_end(
    bootstrap: str, query: MakeQuery
) -> None:
    wanted = query(batches=1)
    run = wanted.run()
    messages = run.prepare_all()
    assert committed(bootstrap, str(wanted.options.topic)) == []
    with patch.object(Ledger, "commit", side_effect=Died), pytest.raises(Died):
        run.commit(messages)
    # Decided, and the driver is dead. The next run finds the decision, writes nothing, and commits.
    after = wanted.run()
    found = after.prepare_all()
    assert [message.participant for message in found] == [None, None]
    after.commit(found)
    check_once(wanted)


# -- several at a time --------------------------------------------------------------------------------------


def test_of_two_drivers_with_the_same_batch_one_decides(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    one, other = wanted.run(), wanted.run()
    of_one, of_other = one.prepare_all(), other.prepare_all()
    one.commit(of_one)
    other.commit(of_other)
    one.commit(of_one)
    check_once(wanted)


def test_a_driver_that_is_overtaken_while_it_decides_gives_way(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    one, other = wanted.run(), wanted.run()
    of_one, of_other = one.prepare_all(), other.prepare_all()
    real = Ledger._record
    overtaken = False

    def record(ledger: Ledger, *arguments: object) -> None:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            other.commit(of_other)
        real(ledger, *arguments)  # type: ignore[arg-type]

    with patch.object(Ledger, "_record", record):
        one.commit(of_one)
    held = Ledger(one.cluster, wanted.name).read()
    assert held is not None
    assert set(held.participants) == {message.participant for message in of_other}
    check_once(wanted)


def test_attempts_that_failed_unheard_do_not_hold_readers_up(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    run = wanted.run()
    run.prepare(0)  # its executor died, and nobody tells the driver
    run.commit([run.prepare(0, retry=1), run.prepare(1)])
    check_once(wanted)


def test_a_batch_behind_one_that_is_committed_is_refused(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=2)
    assert wanted.run().to_the_end()
    wanted.checkpoint = 0  # somebody has restored an old checkpoint
    with pytest.raises(ForebayError, match=r"batch 0 of .* comes after batch 1 was committed"):
        wanted.run().prepare(0)
    check_once(wanted)


# -- giving up ----------------------------------------------------------------------------------------------


def test_an_abort_takes_back_what_is_not_decided(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    run = wanted.run()
    exactly_once.abort(run.cluster, [run.prepare(0), None])
    wait_until_closed(bootstrap, str(wanted.options.topic))
    assert committed(bootstrap, str(wanted.options.topic)) == []
    assert wanted.run().to_the_end()
    check_once(wanted)


def test_an_abort_after_the_decision_completes_it(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    run = wanted.run()
    messages = run.prepare_all()
    with patch.object(Ledger, "commit", side_effect=ForebayError("no")), pytest.raises(ForebayError):
        run.commit(messages)
    exactly_once.abort(run.cluster, [*messages])
    check_once(wanted)


# -- time ---------------------------------------------------------------------------------------------------


def decided_and_timed_out(bootstrap: str, query: MakeQuery) -> Query:
    """A batch that was decided by a driver which died, and of which only the first task was committed."""
    wanted = query(batches=1, transaction_timeout_ms=1000)
    run = wanted.run()
    messages = run.prepare_all()
    with patch.object(Ledger, "commit", side_effect=Died), pytest.raises(Died):
        run.commit(messages)
    first = messages[0].participant
    assert first is not None
    assert Ledger(run.cluster, wanted.name).commit(first)
    wait_until_closed(bootstrap, str(wanted.options.topic))
    return wanted


def test_rows_that_timed_out_after_the_decision_are_written_again(bootstrap: str, query: MakeQuery) -> None:
    wanted = decided_and_timed_out(bootstrap, query)
    after = wanted.run()
    messages = after.prepare_all()
    assert [message.participant is None for message in messages] == [True, False]
    after.commit(messages)
    check_once(wanted)


def test_rows_that_timed_out_and_are_divided_differently_now_are_refused(
    bootstrap: str, query: MakeQuery
) -> None:
    wanted = decided_and_timed_out(bootstrap, query)
    wanted.rows[0][1].pop()
    with pytest.raises(ForebayError, match="It had 20 rows and now has 19"):
        wanted.run().prepare(1)


def test_a_task_that_is_missing_when_its_rows_are_lost_is_named(bootstrap: str, query: MakeQuery) -> None:
    wanted = decided_and_timed_out(bootstrap, query)
    after = wanted.run()
    with pytest.raises(ForebayError, match="aborted the rows of task 1"):
        after.commit([after.prepare(0)])


def test_a_batch_that_timed_out_before_its_commit_fails_and_can_be_repeated(
    bootstrap: str, query: MakeQuery
) -> None:
    wanted = query(batches=1, transaction_timeout_ms=500)
    run = wanted.run()
    messages = run.prepare_all()
    wait_until_closed(bootstrap, str(wanted.options.topic))
    with pytest.raises(ForebayError, match=r"task 0, 1 were aborted, .* kafka\.transaction\.timeout\.ms"):
        run.commit(messages)
    assert committed(bootstrap, str(wanted.options.topic)) == []
    assert wanted.run().to_the_end()
    check_once(wanted)


# -- the ledger ---------------------------------------------------------------------------------------------


def test_a_decision_with_many_participants_is_read_as_it_was_made(bootstrap: str, query: MakeQuery) -> None:
    wanted = query()
    topic, ledger = str(wanted.options.topic), Ledger(wanted.cluster(), str(uuid4()))
    assert ledger.read() is None
    crowd = tuple(Participant(n, f"0123456789ab-{n}.1", 10**9 + n, n % 7, n) for n in range(500))
    large = Decision(batch_id=7, topic=topic, participants=crowd)
    small = Decision(batch_id=8, topic=topic, participants=crowd[:1])
    with patch.object(Ledger, "_check_open"):  # there are no such transactions
        assert ledger.decide(large) == large
        assert ledger.read() == large
        assert ledger.decide(small) == small
        assert ledger.read() == small


def test_more_participants_than_a_decision_can_name_are_refused(bootstrap: str, query: MakeQuery) -> None:
    crowd = tuple(Participant(n, f"0123456789ab-{n}.1", 10**9, 0, 0) for n in range(20_000))
    with pytest.raises(ForebayError, match=r"too many tasks .* coalesce"):
        Ledger(query().cluster(), str(uuid4())).decide(Decision(batch_id=0, topic="any", participants=crowd))
