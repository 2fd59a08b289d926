"""Reads that go on while the broker they read from is killed, by the readers themselves on a real cluster."""

from __future__ import annotations

import time

from forebay.client import Admin, Producer
from forebay.spark.wire.connections import Cluster as Brokers
from forebay.testing import Cluster
from support.spark.reading import batch_reader, micro_batch, stream_reader, value

COUNT = 3000
SECONDS_MAX = 120


def fill(cluster: Cluster, topic: str, numbers: range) -> None:
    with Producer(cluster.bootstrap_servers, settings={"batch.num.messages": 100}) as producer:
        for n in numbers:
            producer.send(topic, value(0, n), partition=0)


def test_a_leader_killed_under_a_task_and_under_a_stream(topic: str) -> None:
    with Cluster(brokers=3, settings={"forebay.lease.ttl.ms": 6_000}) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topic(topic)
        fill(cluster, topic, range(COUNT))
        servers, options = cluster.bootstrap_servers, {"subscribe": topic, "startingOffsets": "earliest"}
        stream = stream_reader(servers, kafka_group_id="watched", **options)
        found, end = micro_batch(stream, stream.initialOffset())
        assert len(found) == COUNT

        reader = batch_reader(servers, subscribe=topic, kafka_max_partition_fetch_bytes=5000)
        (task,) = reader.partitions()
        seen: list[bytes] = []
        for n, batch in enumerate(reader.read(task)):
            seen += batch.column("value").to_pylist()
            if n == 2:
                with Brokers(servers) as brokers:
                    leader = brokers.leadership(topic, 0).node_id
                cluster.kill(leader)
        assert seen == [value(0, n) for n in range(COUNT)]

        fill(cluster, topic, range(COUNT, COUNT + 10))
        found, end = micro_batch(stream, end)
        assert found == sorted(value(0, n) for n in range(COUNT, COUNT + 10))
        deadline = time.monotonic() + SECONDS_MAX
        with Admin(servers) as admin:
            while admin.committed("watched") != {(topic, 0): COUNT + 10}:
                assert time.monotonic() < deadline
                assert micro_batch(stream, end) == ([], end)
