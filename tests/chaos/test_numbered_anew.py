"""librdkafka numbers all its messages anew when one is called out of order: none of them may be stored twice.

It begins a new epoch then, also for messages of other partitions that are under way, of which it does not
know whether they are stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import NewTopic

from forebay.errors import ErrorCode
from support.chaos.actors import QUICK
from support.chaos.chaos_cluster import ChaosCluster, chaos_cluster
from support.chaos.evidence import numbered_batches
from support.chaos.witness import read_everything
from support.clients.config_calls import increment
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin
from support.clients.wire_client import WireClient
from support.faults.links import CLIENTS, broker_name

NEAR, FAR = "near", "far"
LEADERS = {NEAR: 1, FAR: 2}
TOPIC_RESOURCE, SET = 2, 0
UNDER_WAY_S = 0.5
"""How long a request takes at most, with which nothing interferes."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ChaosCluster]:
    with chaos_cluster(tmp_path) as running:
        new = [NewTopic(topic, 1, replica_assignment=[[leader]]) for topic, leader in LEADERS.items()]
        admin = confluent_admin(running.bootstrap_servers)
        for done in admin.create_topics(new).values():
            done.result(DEADLINE_SECONDS)
        yield running


def need_replicas(address: str, topic: str, count: int) -> None:
    with WireClient(address) as client:
        changed = increment(client, TOPIC_RESOURCE, topic, ("min.insync.replicas", SET, str(count)))
        assert changed.error_code == ErrorCode.NONE


def stored_count(cluster: ChaosCluster, topic: str) -> int:
    """Read from the disk: the links may be held."""
    batches = numbered_batches(cluster.broker_data_dir(LEADERS[topic]))
    return sum(line.startswith(f"{topic}-0 ") for line in batches)


def poll_until(producer: Producer, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "nothing happens"
        producer.poll(0.05)


def poll_for(producer: Producer, seconds: float) -> None:
    end = time.monotonic() + seconds
    poll_until(producer, lambda: time.monotonic() >= end)


def test_a_batch_that_is_refused_for_now_does_not_double_what_is_under_way_elsewhere(
    cluster: ChaosCluster,
) -> None:
    near, far = (broker_name(LEADERS[topic]) for topic in (NEAR, FAR))
    direct = cluster.address(LEADERS[NEAR])
    delivered: list[bytes] = []

    def note(error: KafkaError | None, message: object) -> None:
        assert error is None, error
        delivered.append(message.value())  # type: ignore[attr-defined]

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **QUICK, "linger.ms": 0}
    )

    def send(topic: str, value: bytes) -> None:
        producer.produce(topic, value, partition=0, on_delivery=note)

    send(NEAR, b"near 0")
    send(FAR, b"far 0")
    poll_until(producer, lambda: len(delivered) == 2)
    # A message is stored, and the producer does not hear of it, nor can it ask.
    cluster.links.hold((far, CLIENTS))
    send(FAR, b"far 1")
    poll_until(producer, lambda: stored_count(cluster, FAR) == 2)
    cluster.links.hold((CLIENTS, far))
    cluster.links.tear((CLIENTS, far))
    # Two messages are under way, of which the first is refused and the second could be taken.
    need_replicas(direct, NEAR, 2)
    cluster.links.hold((near, CLIENTS))
    send(NEAR, b"near 1")
    poll_for(producer, UNDER_WAY_S)
    need_replicas(direct, NEAR, 1)
    send(NEAR, b"near 2")
    poll_for(producer, UNDER_WAY_S)
    cluster.links.heal((near, CLIENTS))
    poll_until(producer, lambda: {b"near 1", b"near 2"} <= set(delivered))
    cluster.links.heal((CLIENTS, far), (far, CLIENTS))
    poll_until(producer, lambda: len(delivered) == 5)

    found = read_everything(cluster.bootstrap_servers, [(NEAR, 0), (FAR, 0)], "read_uncommitted")
    assert list(found[NEAR, 0].values()) == [b"near 0", b"near 1", b"near 2"]
    assert list(found[FAR, 0].values()) == [b"far 0", b"far 1"]
