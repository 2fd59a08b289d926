"""Exactly-once writes to several topics: what is recorded under which name, and what deleting one changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from forebay.errors import ForebayError
from forebay.spark.jobs import forget_job
from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.transactions import exactly_once, finished_jobs, id_prefixes, stream_names
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.decision_records import DecisionRecords
from forebay.spark.sink.transactions.exactly_once import Prepared
from forebay.spark.sink.transactions.participants import (
    RUN_CHARACTERS,
    Attempt,
    Decision,
    Participant,
    earlier_group_of,
    group_of,
    name_for_topic,
    names_for_topics,
    pieces_of,
)
from forebay.spark.wire.connections import Cluster
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, create
from support.spark.writing import committed, one_by_one

COLUMNS = Columns(value=0, topic=1)


@pytest.fixture
def topics(broker: BrokerProcess) -> list[str]:
    made = [f"several-{each}-{uuid4().hex[:8]}" for each in "abc"]
    with WireClient(broker.bootstrap) as client:
        for topic in made:
            create(client, topic, 1)
    return made


@pytest.fixture
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap) as connected:
        yield connected


def delete(bootstrap: str, topic: str) -> None:
    with WireClient(bootstrap) as client:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30_000)
        (result,) = client.call(request, 6).responses
        assert result.error_code == 0


def new_run() -> str:
    return uuid4().hex[:RUN_CHARACTERS]


def prepare(
    cluster: Cluster,
    name: str,
    topics: list[str],
    *,
    run: str = "",
    batch: int = 0,
    query: str = "",
    **options: str,
) -> list[Prepared]:
    rows = pa.record_batch({"value": [topic.encode() for topic in topics], "topic": topics})
    chosen = WriteOptions(bootstrap=cluster.bootstrap, exactly_once=True, **options)  # type: ignore[arg-type]
    attempt = Attempt(name, run or new_run(), batch, 0, query=query)
    return [exactly_once.prepare(cluster, chosen, COLUMNS, attempt, iter([rows]))]


def write(
    cluster: Cluster, name: str, topics: list[str], *, run: str = "", batch: int = 0, **options: str
) -> None:
    exactly_once.commit(cluster, prepare(cluster, name, topics, run=run, batch=batch, **options))


@pytest.mark.parametrize("gone", [0, 1, 2])
@pytest.mark.parametrize("kept", [True, False], ids=["finished", "killed before it was noted"])
def test_a_job_over_several_topics_is_known_when_one_of_them_is_deleted(
    broker: BrokerProcess, cluster: Cluster, topics: list[str], gone: int, kept: bool
) -> None:
    name = uuid4().hex
    write(cluster, name, topics)
    if kept:
        finished_jobs.keep(cluster, name)
    delete(broker.bootstrap, topics.pop(gone))
    write(cluster, name, topics)
    for topic in topics:
        assert committed(broker.bootstrap, topic) == [topic.encode()]


def test_the_tasks_are_listed_under_every_topic_where_brokers_commit_them_one_by_one(
    cluster: Cluster, topics: list[str]
) -> None:
    listed = []
    for way in (nullcontext, one_by_one):
        name = uuid4().hex
        with way():
            write(cluster, name, topics)
        slots = DecisionRecords(cluster, name)._slots(True)
        assert sorted(slots) == topics
        listed.append([slots[topic].text != "[]" for topic in topics])
        decision = Ledger(cluster, name).read()
        assert decision is not None
        assert (decision.topics, len(decision.participants)) == (tuple(topics), 1)
    assert listed == [[True, False, False], [True, True, True]]


def test_forgetting_a_job_forgets_it_in_all_its_topics(
    broker: BrokerProcess, cluster: Cluster, topics: list[str]
) -> None:
    name = uuid4().hex
    write(cluster, name, topics[:2])
    write(cluster, name, topics[1:], batch=1)
    assert forget_job(name, broker.bootstrap)
    assert not forget_job(name, broker.bootstrap)
    write(cluster, name, topics)
    assert [len(committed(broker.bootstrap, topic)) for topic in topics] == [2, 3, 2]


def test_forgetting_a_job_does_not_stop_one_whose_name_begins_with_its_own(
    broker: BrokerProcess, cluster: Cluster, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers forget transactional ids by prefix: the other's, too, in the moment before its decision."""
    name, add = uuid4().hex, DecisionRecords.add
    forgotten: list[str] = []

    def forget_first(*arguments: Any, **named: Any) -> None:
        if not forgotten:
            forgotten.append(name)
            with Cluster(broker.bootstrap) as other:
                id_prefixes.forget_ids(other, name)
        add(*arguments, **named)

    monkeypatch.setattr(DecisionRecords, "add", forget_first)
    write(cluster, f"{name}2", topics[:1])
    write(cluster, f"{name}2", topics[:1])
    assert forgotten
    assert len(committed(broker.bootstrap, topics[0])) == 1


def test_a_job_that_was_written_to_another_topic_is_refused(cluster: Cluster, topics: list[str]) -> None:
    name = uuid4().hex
    write(cluster, name, topics[:1], topic=topics[0], job_id=name)
    finished_jobs.keep(cluster, name)
    with pytest.raises(
        ForebayError, match=f"written to {topics[0]}, and not to {topics[1]}: give each write"
    ):
        prepare(cluster, name, topics[:1], topic=topics[1], job_id=name)
    write(cluster, name, topics[:1], topic=topics[0], job_id=name)


# -- names ---------------------------------------------------------------------------------------------------


def crowd(count: int) -> tuple[Participant, ...]:
    return tuple(Participant(task, f"{new_run()}-{task}.0~ab", 10**9 + task, 0, 7) for task in range(count))


def record(cluster: Cluster, name: str, decision: Decision) -> None:
    ledger = Ledger(cluster, name)
    identity, _ = ledger._take_over()
    ledger.record(identity, decision, pieces_of(decision.text()), ())


def test_many_tasks_of_one_stream_leave_the_record_of_another_alone(
    cluster: Cluster, topics: list[str]
) -> None:
    name = uuid4().hex
    other = Decision(batch_id=3, topics=(topics[0],), participants=crowd(1))
    record(cluster, f"{name}.1", other)
    large = Decision(batch_id=9, topics=(topics[0],), participants=crowd(300))
    record(cluster, name, large)
    assert Ledger(cluster, name).read() == large
    assert Ledger(cluster, f"{name}.1").read() == other


def test_a_long_record_of_an_earlier_version_is_read_and_belongs_to_no_other_name(
    cluster: Cluster, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name, large = uuid4().hex, Decision(batch_id=9, topics=(topics[0],), participants=crowd(300))
    where = "forebay.spark.sink.transactions"
    with monkeypatch.context() as earlier:
        earlier.setattr(f"{where}.participants.SEVERAL_PIECES", ";")
        earlier.setattr(
            f"{where}.decision_records.group_of",
            lambda name, n=0: earlier_group_of(name, n) if n else group_of(name),
        )
        record(cluster, name, large)
    assert Ledger(cluster, name).read() == large
    assert Ledger(cluster, f"{name}.1").read() is None
    DecisionRecords(cluster, name).shorten(large)
    assert DecisionRecords(cluster, name)._offsets(earlier_group_of(name, 1), True) == {}


def test_names_for_topics_are_found_by_their_groups() -> None:
    names = [name_for_topic("s", "1"), name_for_topic("s", "orders")]
    groups = [
        group_of("s"),
        group_of("s", 1),
        *(group_of(name, piece) for name in names for piece in (0, 1)),
        group_of(name_for_topic("s2", "x")),
        group_of("s-orders"),
    ]
    assert len(set(groups)) == len(groups)
    assert names_for_topics("s", groups) == names


# -- writes of one batch -------------------------------------------------------------------------------------


def in_batch(cluster: Cluster, stream: str, topic: str, query_run: str, batch: int = 0) -> None:
    """One write in foreachBatch, as the sink does it."""
    name = stream_names.name_of(cluster, stream, topic)
    run = stream_names.run_of(name, new_run(), query_run, topic=topic)
    rows = prepare(cluster, name, [topic], run=run, batch=batch, query=stream, topic=topic)
    exactly_once.commit(cluster, rows, in_batch=True)


def test_writes_of_one_batch_to_different_topics_are_all_written_and_repeated_ones_are_not(
    broker: BrokerProcess, cluster: Cluster, topics: list[str]
) -> None:
    stream, first = uuid4().hex, new_run()
    in_batch(cluster, stream, topics[0], first)
    again = new_run()  # killed here, and started again
    for run, batch in ((again, 0), (again, 1)):
        for topic in topics[:2]:
            in_batch(cluster, stream, topic, run, batch)
    assert [len(committed(broker.bootstrap, topic)) for topic in topics] == [2, 2, 0]
    assert forget_job(stream, broker.bootstrap)
    assert not forget_job(stream, broker.bootstrap)


def test_a_second_write_of_a_batch_to_the_same_topic_is_refused(
    broker: BrokerProcess, cluster: Cluster, topics: list[str]
) -> None:
    stream, run = uuid4().hex, new_run()
    in_batch(cluster, stream, topics[0], run)
    with pytest.raises(ForebayError, match=r"has two writes to .* with one streamId: .* streamId of its own"):
        in_batch(cluster, stream, topics[0], run)
    for again in (new_run(), new_run()):
        in_batch(cluster, stream, topics[0], again)  # Spark repeats the batch
        with pytest.raises(ForebayError, match="has two writes to"):
            in_batch(cluster, stream, topics[0], again)
    in_batch(cluster, stream, topics[0], run, batch=1)
    assert len(committed(broker.bootstrap, topics[0])) == 2


def test_of_two_writes_at_the_same_time_one_is_refused_and_none_is_left_open(
    broker: BrokerProcess, cluster: Cluster, topics: list[str]
) -> None:
    stream, query_run = uuid4().hex, new_run()
    name = stream_names.name_of(cluster, stream, topics[0])
    runs = [stream_names.run_of(name, new_run(), query_run, topic=topics[0]) for _ in range(2)]
    one, two = (prepare(cluster, name, topics[:1], run=run, topic=topics[0]) for run in runs)
    exactly_once.commit(cluster, one)
    with pytest.raises(ForebayError, match="two writes"):
        exactly_once.commit(cluster, two)
    exactly_once.abort(cluster, two)
    assert len(committed(broker.bootstrap, topics[0])) == 1


def test_a_stream_that_an_earlier_version_began_goes_on_under_its_name(
    broker: BrokerProcess, cluster: Cluster, topics: list[str]
) -> None:
    stream = uuid4().hex
    earlier = prepare(cluster, stream, topics[:1], batch=4, query=stream, topic=topics[0])
    exactly_once.commit(cluster, earlier)  # as an earlier version did
    for batch in (4, 5, 5, 6):
        for topic in topics[:2]:
            in_batch(cluster, stream, topic, new_run(), batch)
    assert [len(committed(broker.bootstrap, topic)) for topic in topics[:2]] == [3, 3]
    assert stream_names.name_of(cluster, stream, topics[0]) == stream
