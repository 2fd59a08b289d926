"""What brokers remember of jobs and streams that have written: for as long as somebody may come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from forebay.errors import ErrorCode, ForebayError
from forebay.spark.jobs import forget_job
from forebay.spark.sink.transactions import finished_jobs, id_prefixes
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.participants import Decision, Participant, parsed
from forebay.wire.messages.delete_groups import DeleteGroupsRequest
from forebay.wire.messages.list_groups import ListGroupsRequest
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient, create
from support.spark.writing import Query, committed


@pytest.fixture
def query(broker: BrokerProcess, topic: str) -> Iterator[Query]:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, 2)
    made = Query(broker.bootstrap, topic, [[[b"a"], [b"b"]], [[b"c"]]])
    yield made
    made.close()


def groups_of(query: Query) -> list[str]:
    listed = query.cluster().any().ask(ListGroupsRequest()).groups
    return [each.group_id for each in listed if query.name in each.group_id]


def test_a_finished_job_is_one_small_record(broker: BrokerProcess, query: Query) -> None:
    query.rows = [[[b"%d" % n] for n in range(200)]]
    run = query.run()
    run.commit(run.prepare_all())
    assert len(groups_of(query)) > 1
    finished_jobs.keep(run.cluster, query.name)
    assert groups_of(query) == [f"spark-sink-{query.name}"]
    decision = Ledger(run.cluster, query.name).read()
    assert decision is not None
    assert (decision.batch_id, decision.participants) == (0, ())
    again = query.run()
    again.commit(again.prepare_all())
    finished_jobs.keep(again.cluster, query.name)
    assert len(committed(broker.bootstrap, str(query.options.topic))) == 200


def test_a_record_is_not_deleted_as_groups_are_but_can_be_forgotten(
    broker: BrokerProcess, query: Query
) -> None:
    run = query.run()
    run.commit(run.prepare_all())
    finished_jobs.keep(run.cluster, query.name)
    (group,) = groups_of(query)
    (result,) = run.cluster.coordinator(group).ask(DeleteGroupsRequest(groups_names=[group])).results
    assert result.error_code == ErrorCode.POLICY_VIOLATION
    assert forget_job(query.name, broker.bootstrap)
    assert not forget_job(query.name, broker.bootstrap)
    again = query.run()
    again.commit(again.prepare_all())
    assert committed(broker.bootstrap, str(query.options.topic)) == [b"a", b"a", b"b", b"b"]


def test_a_stream_goes_on_when_its_transactional_ids_have_expired(
    broker: BrokerProcess, query: Query
) -> None:
    """Killed between the decision and Spark's note of it, and started again after more than a week."""
    run = query.run()
    run.commit(run.prepare_all())
    id_prefixes.forget_ids(run.cluster, query.name)
    assert query.run().to_the_end()
    assert committed(broker.bootstrap, str(query.options.topic)) == [b"a", b"b", b"c"]


def test_a_stream_with_a_name_recognises_that_its_checkpoint_is_another(
    broker: BrokerProcess, query: Query
) -> None:
    """Its batches begin anew at 0: neither written again nor taken for those that were."""
    query.stream_query = "first"
    run = query.run()
    run.commit(run.prepare_all())
    query.stream_query = "second"
    batches: list[list[list[bytes]]] = [[[b"x"]], [[]]]
    for batch in batches:
        query.rows = [batch]
        lost = query.run()
        with pytest.raises(ForebayError, match="has committed batch 0 from another checkpoint"):
            lost.commit(lost.prepare_all())
    query.stream_query, query.rows = "first", [[[b"a"], [b"b"]], [[b"c"]]]
    assert query.run().to_the_end()
    assert committed(broker.bootstrap, str(query.options.topic)) == [b"a", b"b", b"c"]
    forget_job(query.name, broker.bootstrap)
    query.stream_query, query.checkpoint, query.rows = "second", 0, [[[b"d"]]]
    assert query.run().to_the_end()
    assert committed(broker.bootstrap, str(query.options.topic)) == [b"a", b"b", b"c", b"d"]


def test_a_decision_of_an_earlier_version_has_no_query() -> None:
    participant = Participant(0, "label", 1, 2, 3)
    plain = Decision(batch_id=4, topics=("t",), participants=(participant,))
    assert plain.text() == '[[0,"label",1,2,3]]'
    for decision in (plain, replace(plain, query="q"), replace(plain, query="q", participants=())):
        assert parsed(4, ["t"], decision.text()) == decision
