"""`kafka.client.rack`: tasks read from the replica beside them, and from the leader when that one is gone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from forebay.client import Admin, Producer
from forebay.spark.wire.broker_connection import BrokerConnection
from forebay.spark.wire.connections import Cluster as Brokers
from forebay.testing import Cluster
from forebay.wire.messages.fetch import FetchRequest
from support.spark.reading import batch_reader, value

COUNT = 2000
RACKS = ("north", "south", "west")


def test_a_task_reads_from_its_rack_and_goes_on_with_the_leader(
    topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches: Counter[int] = Counter()
    post = BrokerConnection.post

    def counted(connection: BrokerConnection, request: Any, version: int) -> None:
        if isinstance(request, FetchRequest):
            fetches[int(connection.address.rpartition(":")[2])] += 1
        post(connection, request, version)

    monkeypatch.setattr(BrokerConnection, "post", counted)
    # A busy machine must not lose a lease: the leader would be another one then.
    with Cluster(brokers=3, racks=RACKS, settings={"forebay.lease.ttl.ms": 60_000}) as cluster:
        servers = cluster.bootstrap_servers
        with Admin(servers) as admin:
            admin.create_topic(topic)
        with Producer(servers, settings={"batch.num.messages": 100}) as producer:
            for n in range(COUNT):
                producer.send(topic, value(0, n), partition=0)
        with Brokers(servers) as brokers:
            leader = brokers.leadership(topic, 0).node_id
            ports = {node: port for node, (_, port) in brokers._nodes.items()}
        near = next(node for node in cluster.node_ids if node != leader)
        reader = batch_reader(
            servers,
            subscribe=topic,
            kafka_client_rack=RACKS[near - 1],
            kafka_max_partition_fetch_bytes=5000,
        )
        (task,) = reader.partitions()
        seen: list[bytes] = []
        for n, batch in enumerate(reader.read(task)):
            seen += batch.column("value").to_pylist()
            if n == 2:
                assert fetches[ports[near]] >= 3, fetches
                assert fetches[ports[leader]] == 1, "the leader named the replica"
                cluster.kill(near)
        assert seen == [value(0, n) for n in range(COUNT)]
        assert fetches[ports[leader]] > 1, "who else"
