"""Brokers of a real cluster die, hang, stop and lose their disks under clients that only want to go on."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from forebay.errors import ErrorCode
from forebay.testing import Cluster
from support.brokers.replicated import Topic, until
from support.clients.kafka_clients import DEADLINE_SECONDS
from support.clients.load import Load, read_all
from support.clients.wire_client import WireClient, append, batch

PARTITIONS = 3
RACKS = ("north", "south", "west")
LEASE_MS = 6_000
"""The least there is: who hangs for longer is taken for dead."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    settings = {"forebay.lease.ttl.ms": LEASE_MS, "auto.leader.rebalance.enable": False}
    with Cluster(brokers=3, racks=RACKS, settings=settings) as running:
        yield running


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """One for all tests of this module; afterwards every broker runs again."""
    yield shared
    for node in shared.node_ids:
        shared.resume(node)
        shared.start(node)
    shared.wait_until_ready()


def writing(topic: Topic) -> Load:
    return Load(
        topic.cluster.bootstrap_servers,
        topic.name,
        partitions=topic.partitions,
        idempotent=True,
        acks="all",
        pace_s=0.002,
    )


def check_nothing_lost(topic: Topic, load: Load) -> None:
    """Everything that was acknowledged is where it was acknowledged, once, in the order it was sent in."""
    assert load.failed == []
    for number in range(topic.partitions):
        stored = read_all(topic.cluster.bootstrap_servers, topic.name, number)
        acknowledged = {
            offset: value for (part, offset), value in load.acknowledged.items() if part == number
        }
        assert {offset: stored.get(offset) for offset in acknowledged} == acknowledged
        assert list(stored.values()) == load.sent[number], "doubled, reordered or lost"


# -- leaders that go away ------------------------------------------------------------------------------------


def test_a_killed_leader_is_replaced_and_comes_back_without_its_disk(cluster: Cluster, topic: str) -> None:
    orders = Topic(cluster, topic, PARTITIONS)
    with writing(orders) as load:
        load.wait_for_more(300)
        killed = orders.leader()
        cluster.kill(killed)
        orders.wait_until_led_by_another(killed)
        load.wait_for_more(300)
        shutil.rmtree(cluster.broker_data_dir(killed))
        cluster.start(killed)
        orders.wait_until_in_sync()
        load.wait_for_more(300)
    check_nothing_lost(orders, load)
    orders.wait_until_same_on_all()


def test_a_leader_that_was_asleep_gives_up_what_nobody_else_has(cluster: Cluster, topic: str) -> None:
    orders = Topic(cluster, topic)
    leader, followers = orders.leader(), orders.followers()
    orders.append(b"committed")
    with WireClient(cluster.address(leader)) as client:
        for follower in followers:
            cluster.pause(follower)
        unsafe = [b"unsafe %d" % number for number in range(20)]
        for value in unsafe:
            assert append(client, topic, batch(value), acks=1).error_code == ErrorCode.NONE
        cluster.pause(leader)
    for follower in followers:
        cluster.resume(follower)
    orders.wait_until_led_by_another(leader)
    orders.append(b"after")
    assert unsafe[-1] in orders.stored(leader)
    cluster.resume(leader)
    orders.wait_until_in_sync()
    orders.wait_until_same_on_all()
    values = list(read_all(cluster.bootstrap_servers, topic, 0).values())
    # The first unsafe ones may have been on their way to a follower that had asked before it was paused.
    assert values[0] == b"committed"
    assert values[-1] == b"after"
    assert len(values) < len(unsafe)
    assert values[1:-1] == unsafe[: len(values) - 2]


def test_a_leader_that_is_stopped_hands_over_first(cluster: Cluster, topic: str) -> None:
    orders = Topic(cluster, topic, PARTITIONS)
    with writing(orders) as load:
        for node in cluster.node_ids:
            load.wait_for_more(150)
            cluster.stop(node)
            for partition in range(PARTITIONS):
                orders.wait_until_led_by_another(node, partition)
            load.wait_for_more(150)
            cluster.start(node)
            orders.wait_until_in_sync()
    check_nothing_lost(orders, load)


def test_all_brokers_are_killed_at_once(cluster: Cluster, topic: str) -> None:
    orders = Topic(cluster, topic, PARTITIONS)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": topic,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    committed = [TopicPartition(topic, number, 10 + number) for number in range(PARTITIONS)]
    with writing(orders) as load:
        load.wait_for_more(300)
        consumer.commit(offsets=committed, asynchronous=False)
        for node in cluster.node_ids:
            cluster.kill(node)
        for node in cluster.node_ids:
            cluster.start(node)
        load.wait_for_more(300)
    check_nothing_lost(orders, load)
    found = consumer.committed([TopicPartition(topic, n) for n in range(PARTITIONS)], DEADLINE_SECONDS)
    consumer.close()
    assert [each.offset for each in found] == [each.offset for each in committed]
    orders.wait_until_same_on_all()


# -- too few replicas ----------------------------------------------------------------------------------------


def test_two_of_three_down_refuse_writes_until_one_is_back(cluster: Cluster, topic: str) -> None:
    orders = Topic(cluster, topic)
    leader, followers = orders.leader(), orders.followers()
    orders.append(b"three")
    with WireClient(cluster.address(leader)) as client:
        for follower in followers:
            cluster.stop(follower)
        until(lambda: orders.states()[0].isrs == [leader], "the leader alone in sync")
        assert append(client, topic, batch(b"no"), acks=-1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert append(client, topic, batch(b"one"), acks=1).error_code == ErrorCode.NONE
        cluster.start(followers[0])
        until(lambda: len(orders.states()[0].isrs) == 2, "two replicas in sync")
    orders.append(b"two")
    assert list(read_all(cluster.bootstrap_servers, topic, 0).values()) == [b"three", b"one", b"two"]


# -- reading nearby ------------------------------------------------------------------------------------------


def test_a_consumer_reads_from_the_replica_in_its_rack(cluster: Cluster, topic: str) -> None:
    orders = Topic(cluster, topic)
    near = orders.followers()[0]
    with writing(orders) as load:
        load.wait_for_more(200)
    requests: dict[int, int] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "none",
            "client.rack": RACKS[near - 1],
            "statistics.interval.ms": 100,
            "stats_cb": lambda text: requests.update(fetches_by_broker(text)),
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read: list[Any] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while requests.get(near, 0) < 3 or len(read) < len(load.acknowledged):
        assert time.monotonic() < deadline, f"{len(read)} read, fetches by broker: {requests}"
        read += [message.value() for message in consumer.consume(1_000, 0.1) if message.error() is None]
    consumer.close()
    assert read == load.sent[0]


def fetches_by_broker(statistics: str) -> dict[int, int]:
    brokers = json.loads(statistics)["brokers"].values()
    return {broker["nodeid"]: broker["req"].get("Fetch", 0) for broker in brokers}
