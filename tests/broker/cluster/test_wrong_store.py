"""etcd comes back as another one, empty, or from a backup, under brokers that run: nothing is lost."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from forebay.local.ports import HOST, ReservedPort
from forebay.storage.real_disk import RealDisk
from forebay.storage.strays import Stray, strays
from forebay.testing import Cluster
from support.faults.etcd_states import EtcdStates
from support.waiting import Patience

pytestmark = [pytest.mark.timeout(600), pytest.mark.spread]

_SECONDS_MAX = 180.0
_NODES = (1, 2, 3)
_ANOTHER, _BACK = ("another_store", "went_back")


class WatchedCluster(Cluster):
    """Each broker has a page of metrics."""

    def __init__(self) -> None:
        super().__init__(3, settings={"forebay.lease.ttl.ms": 6000, "min.insync.replicas": 2})
        self.metrics_ports = {node: ReservedPort() for node in _NODES}

    def broker_settings(self, node_id: int) -> dict[str, str]:
        port = self.metrics_ports[node_id].number
        return {**super().broker_settings(node_id), "forebay.metrics.listener": f"{HOST}:{port}"}

    def metric(self, node_id: int, name: str) -> int:
        port = self.metrics_ports[node_id].number
        with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as page:
            lines = page.read().decode().splitlines()
        return int(next(line.rpartition(" ")[2] for line in lines if line.startswith(f"{name} ")))

    def refuse(self, reason: str) -> bool:
        """Whether every broker refuses what answers."""
        name = f'forebay_store_refused{{reason="{reason}"}}'
        return all(self.metric(node, name) == 1 for node in _NODES)

    def leases_valid(self) -> int:
        return sum(self.metric(node, "forebay_lease_valid") for node in _NODES)

    def directories(self) -> set[str]:
        """Of all partitions on all brokers, in use or not."""
        found = (path for node in _NODES for path in self.broker_data_dir(node).iterdir() if path.is_dir())
        return {f"{path.parent.name}/{path.name}" for path in found}


@pytest.fixture
def cluster() -> Iterator[WatchedCluster]:
    running = WatchedCluster()
    try:
        with running:
            yield running
    finally:
        for port in running.metrics_ports.values():
            port.close()


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + _SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not in {_SECONDS_MAX:.0f} s: {what}"
        time.sleep(0.1)


def make_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient({**cluster.client_settings})
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=3)])[name].result(60)


def send(
    cluster: Cluster, topic: str, count: int, *, timeout_s: float = 60.0, idempotent: bool = True
) -> set[bytes]:
    """The messages that were acknowledged."""
    acknowledged: set[bytes] = set()

    def delivered(error: object, message: Any) -> None:
        if error is None:
            acknowledged.add(message.value())

    settings = {"enable.idempotence": idempotent, "acks": "all", "message.timeout.ms": int(timeout_s * 1000)}
    producer = Producer({**cluster.client_settings, **settings})
    for number in range(count):
        value = b"%d of %d at %f" % (number, count, time.monotonic())
        producer.produce(topic, value, partition=number % 2, on_delivery=delivered)
    assert producer.flush(timeout_s + 60) == 0
    return acknowledged


def readable(cluster: Cluster, topic: str) -> list[bytes]:
    """The messages that a consumer finds."""
    consumer = Consumer({**cluster.client_settings, "group.id": "g", "enable.auto.commit": False})
    try:
        wanted = sum(count_of(consumer, TopicPartition(topic, p)) for p in (0, 1))
        consumer.assign([TopicPartition(topic, p, 0) for p in (0, 1)])
        found: list[bytes] = []
        deadline = time.monotonic() + _SECONDS_MAX
        while len(found) < wanted and time.monotonic() < deadline:
            messages = consumer.consume(500, timeout=1)
            found += [value for each in messages if (value := each.value()) and each.error() is None]
        return found
    finally:
        consumer.close()


def count_of(consumer: Consumer, partition: TopicPartition) -> int:
    """Asked again while there is no leader: one is elected when all replicas have reported."""
    patience = Patience(f"{partition.topic} has a leader")
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=10)
            return int(high - low)
        except KafkaException as error:
            patience.check(error)
            time.sleep(0.2)


def check_nothing_is_served(cluster: WatchedCluster, topic: str, directories: set[str]) -> None:
    assert not send(cluster, topic, 4, timeout_s=3, idempotent=False)
    assert cluster.leases_valid() == 0
    assert cluster.directories() == directories
    for node in _NODES:
        assert "the store is not believed" in cluster.log(node)


def test_another_etcd_at_the_same_address_is_not_believed(cluster: WatchedCluster) -> None:
    make_topic(cluster, "t")
    sent = send(cluster, "t", 100)
    assert len(sent) == 100
    before = cluster.directories()
    states = EtcdStates(cluster)
    states.stop()
    wait_for(lambda: cluster.leases_valid() == 0, "all leases have run out")
    with states.another_server() as another:
        wait_for(lambda: cluster.refuse(_ANOTHER), "brokers refuse the other etcd")
        check_nothing_is_served(cluster, "t", before)
        written = another.ask("/v3/kv/range", {"key": "L2ZvcmViYXk=", "range_end": "L2ZvcmViYXo="})
        assert "kvs" not in written, "the other etcd is not ours to write to"
    states.start()
    wait_for(lambda: cluster.leases_valid() == 3, "brokers go on by themselves")
    sent |= send(cluster, "t", 20)
    assert len(sent) == 120
    found = readable(cluster, "t")
    assert sent <= {*found}
    assert before <= cluster.directories()
    assert not cluster.refuse(_ANOTHER)


def test_an_etcd_that_comes_back_empty_is_not_believed(cluster: WatchedCluster) -> None:
    make_topic(cluster, "t")
    sent = send(cluster, "t", 100)
    assert len(sent) == 100
    before = cluster.directories()
    states = EtcdStates(cluster)
    states.stop()
    states.keep("lost")
    states.start()
    wait_for(lambda: cluster.refuse(_BACK), "brokers refuse the empty etcd")
    check_nothing_is_served(cluster, "t", before)
    states.stop()
    states.put_back("lost")
    states.start()
    wait_for(lambda: cluster.leases_valid() == 3, "brokers go on by themselves")
    sent |= send(cluster, "t", 20)
    assert len(sent) == 120
    found = readable(cluster, "t")
    assert sent <= {*found}


def test_a_backup_that_is_restored_under_brokers_takes_no_log(cluster: WatchedCluster) -> None:
    make_topic(cluster, "old")
    sent = send(cluster, "old", 100)
    states = EtcdStates(cluster)
    snapshot = states.save_snapshot()
    make_topic(cluster, "new")
    assert len(send(cluster, "new", 50)) == 50
    before = cluster.directories()
    states.stop()
    states.restore_snapshot(snapshot)
    states.start()
    wait_for(lambda: cluster.refuse(_BACK), "brokers refuse the older state")
    check_nothing_is_served(cluster, "new", before)
    for node in _NODES:
        cluster.stop(node)
    for node in _NODES:
        cluster.start(node)
    cluster.wait_until_ready()
    assert {*readable(cluster, "old")} == sent
    assert before <= cluster.directories()
    for node in _NODES:
        kept = of_topic(cluster.broker_data_dir(node), "new")
        assert sum(stray.end_offset for stray in kept) >= 50
        assert {stray.in_place for stray in kept} == {True}, "it is used again if the store knows it again"
        assert cluster.metric(node, "forebay_stray_logs") == 2


def of_topic(directory: Path, topic: str) -> list[Stray]:
    return [stray for stray in strays(RealDisk(), str(directory)) if stray.topic == topic]
