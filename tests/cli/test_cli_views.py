"""`forebay view` against a real broker."""

from __future__ import annotations

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import Done, forebay


class Forebay:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str, stdin: str = "") -> Done:
        return forebay(*arguments, bootstrap=self._bootstrap, stdin=stdin)

    def ok(self, *arguments: str, stdin: str = "") -> Done:
        done = self(*arguments, stdin=stdin)
        assert done.code == 0, done.err
        return done


@pytest.fixture
def run(broker: BrokerProcess) -> Forebay:
    return Forebay(broker.bootstrap)


def test_a_view_from_creation_to_deletion(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    run.ok("produce", topic, stdin='{"n": 1}\n{"n": 200}\nnot json\n{"n": 300}\n')
    view = f"{topic}-view"
    made = run.ok("view", "create", view, "--from", topic, "--where", "value.n > 100", "--select", "value.n")
    assert made.out == f"created view {view} of topic {topic}\n"
    read = run.ok("consume", view, "--from", "beginning", "--count", "2")
    assert read.out == '{"n":200}\n{"n":300}\n'
    listed = {each["name"]: each for each in run.ok("view", "list", "--json").json()}
    assert (listed[view]["source"], listed[view]["where"]) == (topic, "value.n > 100")
    assert topic not in listed
    assert any(line.startswith(view) for line in run.ok("view", "list").out.splitlines())
    described = run.ok("view", "describe", view, "--json").json()
    assert described["select"] == "value.n"
    assert described["partitions"] == [{"partition": 0, "start_offset": 0, "end_offset": 4}]
    assert "value.n > 100" in run.ok("view", "describe", view).out
    refused = run("topic", "delete", topic, "--yes")
    assert refused.code == 1 and view in refused.err
    assert run.ok("view", "delete", view, "--yes").out == f"deleted view {view}\n"
    run.ok("topic", "delete", topic, "--yes")


def test_a_materialized_view_from_creation_to_deletion(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    run.ok("produce", topic, stdin='{"n": 1}\n{"n": 200}\n')
    view = f"{topic}-view"
    query = ("--from", topic, "--where", "value.n > 100", "--materialize", "--config", "retention.ms=-1")
    made = run.ok("view", "create", view, *query)
    assert made.out == f"created materialized view {view} of topic {topic}\n"
    assert run.ok("consume", view, "--from", "beginning", "--count", "1").out == '{"n": 200}\n'
    listed = {each["name"]: each for each in run.ok("view", "list", "--json").json()}
    assert (listed[view]["materialized"], listed[view]["source"]) == (True, topic)
    described = run.ok("view", "describe", view, "--json").json()
    (partition,) = described["partitions"]
    assert partition == {"partition": 0, "start_offset": 0, "end_offset": 2, "lag": 0, "stopped": None}
    assert "LAG" in run.ok("view", "describe", view).out
    assert run.ok("config", "get", "topic", view, "retention.ms").out.strip() == "-1"
    refused = run("produce", view, stdin="x\n")
    assert refused.code == 1 and "POLICY_VIOLATION" in refused.err
    assert run("view", "create", f"{topic}-v", "--from", topic, "--config", "retention.ms=-1").code == 2
    assert run("topic", "delete", topic, "--yes").code == 1
    run.ok("view", "delete", view, "--yes")
    run.ok("topic", "delete", topic, "--yes")


def test_a_topic_is_not_deleted_as_a_view(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    refused = run("view", "delete", topic, "--yes")
    assert refused.code == 1 and "no view" in refused.err
    assert topic in run.ok("topic", "list").out


def test_the_place_of_a_mistake_is_shown(run: Forebay, topic: str) -> None:
    run.ok("topic", "create", topic)
    refused = run("view", "create", f"{topic}-view", "--from", topic, "--where", "value.n >> 1 nonsense")
    assert refused.code == 1
    assert "^" in refused.err


def test_the_cluster_does_not_count_the_partitions_of_views(run: Forebay, topic: str) -> None:
    def replicas() -> int:
        return sum(each["replicas"] for each in run.ok("cluster", "describe", "--json").json()["brokers"])

    run.ok("topic", "create", topic, "--partitions", "3")
    before = replicas()
    run.ok("view", "create", f"{topic}-view", "--from", topic)
    assert replicas() == before


def test_why_a_materialized_view_is_not_filled(run: Forebay, topic: str) -> None:
    view = f"{topic}-copy"
    run.ok("topic", "create", topic)
    run.ok("view", "create", view, "--from", topic, "--materialize", "--config", "min.insync.replicas=2")
    text = run.ok("view", "describe", view).out
    reason = "too few replicas of the view's partition are in sync"
    assert f"partition 0 is not filled: {reason}" in text
    (partition,) = run.ok("view", "describe", view, "--json").json()["partitions"]
    assert partition["stopped"] == reason
    run.ok("config", "set", "topic", view, "min.insync.replicas=1")
    assert "is not filled" not in run.ok("view", "describe", view).out
