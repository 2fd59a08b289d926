"""Transactional ids that belong to one coordinator, by a few characters at their end."""

from __future__ import annotations

from uuid import uuid4

import pytest

from forebay.spark.sink.transactions.coordinator_choice import StatePartition, state_partition_of
from forebay.spark.sink.transactions.participants import Attempt, marked, turn_in
from forebay.spark.wire.connections import Cluster
from forebay.testing import Broker
from forebay.wire.coordinator_partition import partition_for


@pytest.mark.parametrize("partitions", [1, 2, 50, 1000])
def test_there_is_a_salt_for_every_partition_and_every_stem(partitions: int) -> None:
    for n in range(20):
        home = StatePartition(n * 7919 % partitions, partitions)
        stem = f"spark-{uuid4()}-0123456789ab-{n}.1~"
        salt = home.salt_for(stem)
        assert home.holds(stem + salt)
        assert partition_for(stem + salt, partitions) == home.partition
        assert len(salt) <= 3


@pytest.mark.parametrize("retry", [0, 12])
@pytest.mark.parametrize("salt", ["", "a", "z09"])
def test_a_label_tells_its_turn_with_salt_and_without(salt: str, retry: int) -> None:
    for batch_id in (6, 7):
        attempt = Attempt("name", "0123456789ab", batch_id, 3, retry, salt)
        assert turn_in(attempt.label) == batch_id % 2
        assert attempt.transactional_id.endswith(attempt.label)
    assert turn_in("somebody-else") is None


@pytest.mark.parametrize("name", ["name", "5f0c5d0e-3b1f-4a52-9d4e-0a7c6b1e2f93", "of-0123456789ab-7.0"])
def test_an_attempt_is_known_by_the_mark_of_its_stream(name: str) -> None:
    run, mark = "0123456789ab", "ba9876543210"
    attempt = Attempt(name, run + mark, 7, 3, salt="a")
    assert marked(attempt.transactional_id, mark) == (name, attempt.label)
    assert marked(attempt.transactional_id, run + mark) == (name, attempt.label)
    assert marked(attempt.transactional_id, run) is None
    assert marked(Attempt(name, run, 7, 3).transactional_id, mark) is None
    assert marked(f"spark-sink-{name}", mark) is None


def test_home_is_where_the_broker_looks_for_an_id() -> None:
    settings = {"transaction.state.log.num.partitions": 7}
    with Broker(settings=settings) as broker, Cluster(broker.bootstrap_servers) as cluster:
        home = cluster.attempt(lambda: state_partition_of(cluster, "spark-sink-job"))
        assert home == StatePartition(partition_for("spark-sink-job", 7), 7)
