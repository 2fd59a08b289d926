"""The sink on a replicated cluster whose leaders and coordinators are killed while it writes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pyarrow as pa
import pytest

from forebay.spark.sink.options import Columns, WriteOptions
from forebay.spark.sink.producer import Limits, Producer, new_identity
from forebay.spark.sink.task import TaskSink
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.participants import Participant
from forebay.spark.wire import connections
from forebay.spark.wire.connections import TRANSACTION
from forebay.testing import Cluster
from support.clients.wire_client import WireClient, create
from support.spark.reading import batch_reader, rows
from support.spark.writing import Query, committed

pytestmark = pytest.mark.timeout(300)

OPTIONS = {"kafka.default.api.timeout.ms": "120000"}
DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings={"forebay.lease.ttl.ms": 6_000}) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"sink-{uuid4()}"
    with WireClient(cluster.address(1)) as client:
        create(client, name, 2)
    return name


def test_rows_keep_their_order_when_their_leader_is_killed(cluster: Cluster, topic: str) -> None:
    brokers = connections.Cluster(cluster.bootstrap_servers, OPTIONS)
    limits = Limits(batch_bytes=2_000)
    producer = Producer(brokers, new_identity(brokers), limits)
    columns = Columns(value=0, partition=1)
    sink = TaskSink(producer, WriteOptions(bootstrap="", topic=topic, limits=limits), columns, task=0)
    victim = brokers.attempt(lambda: brokers.leadership(topic, 0).node_id)
    per_batch = 2_000

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 5 * per_batch, per_batch):
            if first == 2 * per_batch:
                cluster.kill(victim)
            values = [b"%d" % n for n in range(first, first + per_batch)]
            places = pa.array([n % 2 for n in range(per_batch)], pa.int32())
            yield pa.record_batch({"value": pa.array(values, pa.binary()), "partition": places})

    # All but the last rows of a batch are sent before the next is asked for.
    with patch("forebay.spark.sink.task.ROUND_BYTES", 1_000):
        sink.write(batches())
    brokers.close()
    found = rows(batch_reader(cluster.bootstrap_servers, subscribe=topic))
    for partition in (0, 1):
        numbers = [int(row["value"]) for row in found if row["partition"] == partition]
        assert numbers == list(range(partition, 5 * per_batch, 2))
    cluster.start(victim)
    cluster.wait_until_ready()


@pytest.mark.parametrize("answered", [False, True], ids=["before it has answered", "after its answer"])
def test_a_batch_is_committed_once_when_its_coordinator_is_killed(
    cluster: Cluster, topic: str, answered: bool
) -> None:
    """The one step that decides is under way, or done; nobody but the brokers does anything afterwards."""
    written = [[[b"%d/%d" % (task, n) for n in range(50)] for task in range(3)]]
    query = Query(cluster.bootstrap_servers, topic, written, connection=OPTIONS)
    run = query.run()
    real_conclude = Ledger.conclude
    killed: list[int] = []

    def kill() -> None:
        address = run.cluster.coordinator(f"spark-sink-{query.name}", TRANSACTION).address
        (victim,) = (node for node in cluster.node_ids if cluster.address(node) == address)
        cluster.kill(victim)
        killed.append(victim)

    def conclude(ledger: Ledger, *arguments: Any) -> frozenset[Participant]:
        if not answered and not killed:
            kill()
        ended = real_conclude(ledger, *arguments)
        if answered:
            kill()
        assert len(ended) == 3
        return ended

    with patch.object(Ledger, "conclude", conclude):
        assert run.to_the_end()
    assert killed
    wanted = sorted(value for task in written[0] for value in task)
    deadline = time.monotonic() + DEADLINE_S
    while committed(cluster.bootstrap_servers, topic) != wanted:
        assert time.monotonic() < deadline, "the rows have not become visible"
        time.sleep(0.2)
    query.close()
    cluster.start(killed[0])
    cluster.wait_until_ready()
