"""Transactions of exactly-once writes: kept open while their job lives, and without a trace afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from unittest.mock import patch
from uuid import uuid4

import pytest

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.sink.options import WriteOptions
from forebay.spark.sink.transactions import exactly_once, id_prefixes
from forebay.spark.sink.transactions.batch_decisions import Ledger, open_ids
from forebay.spark.sink.transactions.exactly_once import Prepared
from forebay.spark.sink.transactions.renewal import Renewals
from forebay.spark.wire.connections import Cluster
from forebay.testing import Broker
from forebay.wire.messages.list_groups import ListGroupsRequest
from forebay.wire.messages.list_transactions import ListTransactionsRequest
from support.clients.wire_client import WireClient, create
from support.spark.writing import Query, committed, one_by_one, wait_until_closed

TIMEOUT_MS = 5_000
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}
    with Broker(process=True, settings=settings) as running:
        yield running.bootstrap_servers


@pytest.fixture
def query(bootstrap: str) -> Iterator[Query]:
    """One batch of two tasks."""
    topic = f"sink-{uuid4()}"
    with WireClient(bootstrap) as client:
        create(client, topic, 2)
    made = Query(bootstrap, topic, [[[b"a", b"b"], [b"c"]]], transaction_timeout_ms=TIMEOUT_MS)
    yield made
    made.close()


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def other_of(query: Query) -> Query:
    """A transaction with the same timeout, which nobody renews."""
    topic, rows = str(query.options.topic), [[[b"x"]]]
    other = Query(query.options.bootstrap, topic, rows, transaction_timeout_ms=TIMEOUT_MS)
    other.run().prepare(0)
    return other


def wait_until_others_have_timed_out(query: Query) -> None:
    other = other_of(query)
    until(lambda: not is_open(other), "the brokers abort what is not renewed")
    other.close()


def is_open(query: Query) -> bool:
    return any(each.startswith(f"spark-{query.name}-") for each in open_ids(query.cluster()))


# -- renewing ------------------------------------------------------------------------------------------------


def test_a_task_that_works_keeps_what_the_others_have_written(bootstrap: str, query: Query) -> None:
    run, renewals = query.run(), Renewals(linger_s=0)
    messages = [run.prepare(0)]
    with renewals.working_for(run.job()):  # for its first row, say
        wait_until_others_have_timed_out(query)
        assert is_open(query)
        messages.append(run.prepare(1))
        wait_until_others_have_timed_out(query)
    run.commit(messages)
    wait_until_closed(bootstrap, str(query.options.topic))
    assert committed(bootstrap, str(query.options.topic)) == [b"a", b"b", b"c"]
    until(lambda: not len(renewals), "the thread has nothing left to do")


def test_what_nobody_works_for_times_out(bootstrap: str, query: Query) -> None:
    run = query.run()
    with Renewals(linger_s=0).working_for(run.job()):
        run.prepare(0)
        wait_until_others_have_timed_out(query)
        assert is_open(query)
    wait_until_closed(bootstrap, str(query.options.topic))


def test_a_worker_goes_on_for_a_while_after_its_last_task_until_all_is_decided(query: Query) -> None:
    run, renewals = query.run(), Renewals(linger_s=DEADLINE_S)
    with renewals.working_for(run.job()):
        messages = run.prepare_all()
    wait_until_others_have_timed_out(query)
    assert len(renewals) == 1
    run.commit(messages)
    until(lambda: not len(renewals), "what is decided need not be renewed")


def test_each_task_with_rows_renews_when_it_begins(bootstrap: str, query: Query) -> None:
    """Where workers are not used again there is no thread that lives long enough."""
    run, other = query.run(), other_of(query)
    messages: list[Prepared] = []
    query.rows = [[]]
    while is_open(other):
        query.rows[0].append([b"a"])
        messages.append(run.prepare(len(messages)))
        time.sleep(0.1)
    other.close()
    run.commit(messages)
    wait_until_closed(bootstrap, str(query.options.topic))  # readers see it when the markers are written
    assert committed(bootstrap, str(query.options.topic)) == [b"a"] * len(messages)


def test_what_an_attempt_has_opened_too_late_is_not_kept_by_later_batches(
    bootstrap: str, query: Query
) -> None:
    """Its executor was thought dead, and its task done again elsewhere; no later batch has so many tasks."""
    rows = [[[b"0"]], [[b"1"], [b"1"]], [[b"2"]], [[b"3"]]]
    late = Query(bootstrap, str(query.options.topic), rows)
    run = late.run()
    run.commit([run.prepare(0)])
    late.checkpoint = 1
    run.commit([run.prepare(0), run.prepare(1, retry=1)])
    with patch.object(Ledger, "read", return_value=None):  # as it was when the attempt began
        run.prepare(1)
    assert is_open(late)
    for late.checkpoint in (2, 3):
        run.commit([run.prepare(0)])
    assert not is_open(late)
    wait_until_closed(bootstrap, str(late.options.topic))
    assert committed(bootstrap, str(late.options.topic)) == [b"0", b"1", b"1", b"2", b"3"]
    late.close()


def test_a_broker_that_is_away_for_a_moment_stops_nothing(query: Query) -> None:
    run, renewals = query.run(), Renewals(linger_s=0)
    real, failures = (
        id_prefixes.renew,
        iter([KafkaError(ErrorCode.NETWORK_EXCEPTION, "away"), ValueError("odd")]),
    )

    def renew(*arguments: object, **named: object) -> int:
        for failure in failures:
            raise failure
        return real(*arguments, **named)  # type: ignore[arg-type]

    with patch.object(id_prefixes, "renew", renew), renewals.working_for(run.job()):
        messages = run.prepare_all()
        wait_until_others_have_timed_out(query)
    run.commit(messages)


def test_brokers_that_cannot_renew_are_left_alone(query: Query) -> None:
    run, renewals = query.run(), Renewals(linger_s=DEADLINE_S)
    with patch.object(id_prefixes, "can_look_after", return_value=False), one_by_one():
        with renewals.working_for(run.job()):
            run.prepare(0)
        until(lambda: not len(renewals), "there is nothing to do")


def test_the_timeout_is_short_where_it_is_renewed(query: Query) -> None:
    cluster = query.cluster()
    assert id_prefixes.timeout_ms(cluster, "any") == 120_000
    with patch.object(id_prefixes, "can_look_after", return_value=False):
        assert id_prefixes.timeout_ms(cluster, "any") == 900_000
    assert WriteOptions(bootstrap="any").transaction_timeout_ms is None


# -- forgetting ----------------------------------------------------------------------------------------------


def traces(bootstrap: str, name: str) -> list[str]:
    """Groups and transactional ids that brokers keep of a name."""
    with Cluster(bootstrap) as cluster:
        groups = cluster.any().ask(ListGroupsRequest()).groups
        ids = cluster.any().ask(ListTransactionsRequest()).transaction_states
    found = [each.group_id for each in groups] + [each.transactional_id for each in ids]
    return [each for each in found if name in each]


@pytest.mark.parametrize("tasks", [2, 200])
def test_a_write_without_a_name_leaves_nothing_behind(bootstrap: str, query: Query, tasks: int) -> None:
    query.rows = [[[b"%d" % n] for n in range(tasks)]]
    run = query.run()
    messages = run.prepare_all()
    exactly_once.commit(run.cluster, messages, forget_name=True)
    until(lambda: not traces(bootstrap, query.name), f"left: {traces(bootstrap, query.name)[:3]}")
    assert len(committed(bootstrap, str(query.options.topic))) == tasks


def test_a_write_without_rows_and_without_a_name_leaves_nothing_behind(bootstrap: str, query: Query) -> None:
    query.rows = [[[], []]]
    run = query.run()
    exactly_once.commit(run.cluster, run.prepare_all(), forget_name=True)
    assert traces(bootstrap, query.name) == []


def test_a_write_that_fails_leaves_nothing_behind(bootstrap: str, query: Query) -> None:
    run = query.run()
    assert not exactly_once.abort(run.cluster, [run.prepare(0), None])
    exactly_once.forget(run.cluster, query.name)
    until(lambda: not traces(bootstrap, query.name), "everything is aborted and forgotten")


def test_a_write_with_a_name_is_remembered(bootstrap: str, query: Query) -> None:
    run = query.run()
    run.commit(run.prepare_all())
    assert f"spark-sink-{query.name}" in traces(bootstrap, query.name)
    assert not [each.participant for each in query.run().prepare_all() if each.participant]
