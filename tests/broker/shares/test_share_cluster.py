"""confluent-kafka's ShareConsumer against three brokers, each of which is killed in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from forebay.client import Admin, Producer
from forebay.testing import Cluster
from support.clients.share_member import configure
from support.clients.share_worker import Worker, work_until
from support.clients.wire_client import WireClient

PER_ROUND = 90
PARTITIONS = 3
TOPIC = GROUP = "jobs"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    settings = {
        "forebay.lease.ttl.ms": 6_000,
        "offsets.topic.num.partitions": 3,
        "share.coordinator.state.topic.num.partitions": 3,
    }
    with Cluster(brokers=3, settings=settings) as running:
        yield running


def send(cluster: Cluster, numbers: range) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(TOPIC, str(number), key=str(number))


def test_each_message_is_accepted_once_though_every_broker_dies(cluster: Cluster) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    with WireClient(cluster.address(1)) as client:
        configure(client, GROUP, share_record_lock_duration_ms="2000", share_delivery_count_limit="10")
    servers = cluster.bootstrap_servers
    with Worker(servers, GROUP, TOPIC) as one, Worker(servers, GROUP, TOPIC) as two:
        workers = (one, two)

        def is_done(count: int) -> bool:
            seen = {value for each in workers for value in (each.accepted + each.refused)}
            return len(seen) == count

        for turn, node in enumerate(cluster.node_ids, 1):
            send(cluster, range((turn - 1) * PER_ROUND, turn * PER_ROUND - PER_ROUND // 2))
            for worker in workers:
                worker.work()
            cluster.kill(node)
            send(cluster, range(turn * PER_ROUND - PER_ROUND // 2, turn * PER_ROUND))
            work_until(lambda turn=turn: is_done(turn * PER_ROUND), *workers)  # type: ignore[misc]
            cluster.start(node)
            cluster.wait_until_ready()
        accepted: Counter[bytes] = one.accepted + two.accepted
        assert set(accepted.values()) == {1}
        assert len(accepted) > PER_ROUND
