"""The exactly-once protocol against a real broker: dying anywhere, two drivers, rows that timed out."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Protocol
from unittest.mock import patch
from uuid import uuid4

import pytest

from forebay.errors import ErrorCode, ForebayError
from forebay.spark.sink.transactions import exactly_once
from forebay.spark.sink.transactions.batch_decisions import Ledger, abort_marked
from forebay.spark.sink.transactions.participants import Decision, Participant
from forebay.testing import Broker
from forebay.wire.messages.end_txn import EndTxnResponse
from support.clients.wire_client import WireClient, create
from support.spark.writing import Died, Query, Run, committed, one_by_one, wait_until_closed

TASKS = 2
BATCHES = 2
WAYS = {"together": contextlib.nullcontext, "one by one": one_by_one}
"""How participants are committed."""
Way = Callable[[], contextlib.AbstractContextManager[object]]


class MakeQuery(Protocol):
    def __call__(self, batches: int = BATCHES, tasks: int = TASKS, **options: int) -> Query: ...


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
        "transaction.state.log.num.partitions": 4,
    }
    with Broker(process=True, settings=settings) as running:
        yield running.bootstrap_servers


@pytest.fixture
def query(bootstrap: str) -> Iterator[MakeQuery]:
    made: list[Query] = []

    def make(batches: int = BATCHES, tasks: int = TASKS, **options: int) -> Query:
        topic = f"sink-{uuid4()}"
        with WireClient(bootstrap) as client:
            create(client, topic, 2)
        rows = [
            [[b"%d/%d/%d" % (batch, task, n) for n in range(20)] for task in range(tasks)]
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


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_dying_at_any_exchange_with_a_broker_leaves_each_row_once(
    bootstrap: str, query: MakeQuery, way: Way
) -> None:
    undisturbed = query(batches=1)
    first = undisturbed.run()
    with way():
        assert first.to_the_end()
    check_once(undisturbed)

    for step in range(1, first.mortality.steps + 1):
        wanted = query(batches=1)
        with way():
            assert not wanted.run(dies_at=step).to_the_end()
            assert wanted.run().to_the_end()
        check_once(wanted)


@pytest.mark.parametrize("seed", range(8))
def test_dying_again_and_again_leaves_each_row_once(query: MakeQuery, seed: int) -> None:
    """Each time with brokers that may or may not know how to end transactions together."""
    chance = random.Random(seed)
    wanted = query(batches=3)
    ended = False
    while not ended:
        with chance.choice([*WAYS.values()])():
            ended = wanted.run(dies_at=chance.randint(5, 90)).to_the_end()
    check_once(wanted)


def test_nothing_is_visible_before_the_decision_and_everything_after_it_in_the_end(
    bootstrap: str, query: MakeQuery
) -> None:
    wanted = query(batches=1)
    run = wanted.run()
    messages = run.prepare_all()
    assert committed(bootstrap, str(wanted.options.topic)) == []
    with one_by_one(), patch.object(Ledger, "commit", side_effect=Died), pytest.raises(Died):
        run.commit(messages)
    # Decided, and the driver is dead. The next run finds the decision, writes nothing, and commits.
    after = wanted.run()
    found = after.prepare_all()
    assert [message.participant for message in found] == [None, None]
    after.commit(found)
    check_once(wanted)


# -- all or none, without another run -----------------------------------------------------------------------


def left_by_dead_drivers(bootstrap: str, query: MakeQuery, way: Way) -> list[int]:
    """How many tasks' rows are seen after each death in the driver's commit, once brokers have worked.

    Nobody starts the job again. What stays undecided runs out of time.
    """
    made = query(batches=1)
    undisturbed = made.run()
    with way():
        messages = undisturbed.prepare_all()
        with undisturbed.mortality():
            undisturbed.commit(messages)
    wanted = [made]
    for step in range(1, undisturbed.mortality.steps + 1):
        wanted.append(query(batches=1, transaction_timeout_ms=8_000))
        run = wanted[-1].run(dies_at=step)
        with way():
            messages = run.prepare_all()
            with run.mortality(), pytest.raises(Died):
                run.commit(messages)
        run.cluster.close()
    return [tasks_seen(bootstrap, each) for each in wanted]


def tasks_seen(bootstrap: str, wanted: Query) -> int:
    topic = str(wanted.options.topic)
    wait_until_closed(bootstrap, topic)
    seen = committed(bootstrap, topic)
    whole = [task for task in wanted.rows[0] if set(task) <= set(seen)]
    assert seen == sorted(value for task in whole for value in task)
    return len(whole)


def test_a_driver_that_dies_while_it_commits_leaves_all_rows_or_none(
    bootstrap: str, query: MakeQuery
) -> None:
    seen = left_by_dead_drivers(bootstrap, query, WAYS["together"])
    assert set(seen) == {0, TASKS}
    assert seen[1:] == sorted(seen[1:]), "there is one step at which everything is decided"


def test_brokers_that_end_one_transaction_at_a_time_can_be_left_with_a_part(
    bootstrap: str, query: MakeQuery
) -> None:
    """What the guide says of them; and the test above could fail."""
    assert set(left_by_dead_drivers(bootstrap, query, WAYS["one by one"])) == {0, 1, TASKS}


def test_the_driver_asks_no_more_when_there_are_more_tasks(query: MakeQuery) -> None:
    steps = []
    for tasks in (2, 9):
        run = query(batches=1, tasks=tasks).run()
        messages = run.prepare_all()
        with run.mortality():
            run.commit(messages)
        steps.append(run.mortality.steps)
    assert steps[0] == steps[1]


def test_a_coordinator_that_skips_the_tag_ends_them_one_by_one(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    real = Ledger.end_txn

    def end_txn(ledger: Ledger, *arguments: object) -> EndTxnResponse:
        return real(ledger, *arguments[:3])  # type: ignore[arg-type]

    with patch.object(Ledger, "end_txn", end_txn):
        assert wanted.run().to_the_end()
    check_once(wanted)


def refused(wanted: Query) -> Run:
    """A run whose commit is refused since its tasks are too many."""
    run = wanted.run()
    messages = run.prepare_all()
    with pytest.raises(ForebayError, match=r"too many tasks .* coalesce\(\) them to 1"):
        run.commit(messages)
    exactly_once.abort(run.cluster, [*messages])
    return run


def test_more_tasks_than_a_request_takes_are_refused(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    with patch("forebay.spark.sink.transactions.batch_decisions.FURTHER_MAX", 1):
        refused(wanted)
    wait_until_closed(bootstrap, str(wanted.options.topic))
    assert committed(bootstrap, str(wanted.options.topic)) == []
    assert wanted.run().to_the_end()
    check_once(wanted)


def test_more_than_a_coordinator_can_save_at_once_is_refused(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    real = Ledger.end_txn

    def end_txn(ledger: Ledger, *arguments: object) -> EndTxnResponse:
        if len(arguments) > 3:
            return EndTxnResponse(error_code=ErrorCode.MESSAGE_TOO_LARGE, further_error_codes=[10, 10])
        return real(ledger, *arguments)  # type: ignore[arg-type]

    with patch.object(Ledger, "end_txn", end_txn):
        refused(wanted)
    assert wanted.run().to_the_end()
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
    real = Ledger.record
    overtaken = False

    def record(ledger: Ledger, *arguments: object) -> frozenset[Participant]:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            other.commit(of_other)
        return real(ledger, *arguments)  # type: ignore[arg-type]

    with patch.object(Ledger, "record", record):
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


def test_what_a_killed_task_has_not_told_of_is_taken_back(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    dead, other = wanted.run(), wanted.run()
    untold, alive = dead.prepare(0).participant, other.prepare(1).participant
    assert untold is not None
    assert alive is not None
    ledger = Ledger(dead.cluster, wanted.name)
    abort_marked(dead.cluster, dead.run_id)
    assert not ledger.commit(untold)
    assert ledger.commit(alive), "it is of another run"
    wait_until_closed(bootstrap, str(wanted.options.topic))


def test_what_is_decided_stays_though_its_run_is_given_up(query: MakeQuery) -> None:
    wanted = query(batches=1)
    run = wanted.run()
    messages = run.prepare_all()
    no = patch.object(Ledger, "commit", side_effect=ForebayError("no"))
    with one_by_one(), no, pytest.raises(ForebayError):
        run.commit(messages)
    abort_marked(run.cluster, run.run_id)
    exactly_once.abort(run.cluster, [*messages])
    check_once(wanted)


def test_an_abort_after_the_decision_completes_it(bootstrap: str, query: MakeQuery) -> None:
    wanted = query(batches=1)
    run = wanted.run()
    messages = run.prepare_all()
    no = patch.object(Ledger, "commit", side_effect=ForebayError("no"))
    with one_by_one(), no, pytest.raises(ForebayError):
        run.commit(messages)
    exactly_once.abort(run.cluster, [*messages])
    check_once(wanted)


# -- time ---------------------------------------------------------------------------------------------------


def decided_and_timed_out(bootstrap: str, query: MakeQuery) -> Query:
    """A batch that was decided by a driver which died, and of which only the first task was committed."""
    wanted = query(batches=1, transaction_timeout_ms=1000)
    run = wanted.run()
    messages = run.prepare_all()
    with one_by_one(), patch.object(Ledger, "commit", side_effect=Died), pytest.raises(Died):
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
    large = Decision(batch_id=7, topics=(topic,), participants=crowd)
    small = Decision(batch_id=8, topics=(topic,), participants=crowd[:1])
    with one_by_one(), patch.object(Ledger, "_check_open"):  # there are no such transactions
        assert ledger.decide(large).decision == large
        assert ledger.read() == large
        assert ledger.decide(small).decision == small
        assert ledger.read() == small


def test_more_participants_than_a_decision_can_name_are_refused(bootstrap: str, query: MakeQuery) -> None:
    crowd = tuple(Participant(n, f"0123456789ab-{n}.1", 10**9, 0, 0) for n in range(20_000))
    with pytest.raises(ForebayError, match=r"too many tasks .* coalesce"):
        Ledger(query().cluster(), str(uuid4())).decide(
            Decision(batch_id=0, topics=("any",), participants=crowd)
        )
