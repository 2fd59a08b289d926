"""A cluster under measurement: three brokers of this checkout on this machine, and the etcd they need.

To a load generator it looks like one server: its address is that of the broker that leads, its CPU time is
that of all brokers together. etcd has no part in messages and is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from bench.load import Address
from bench.server import BenchError, process_cpu_s
from forebay.testing.cluster import Cluster

BROKERS = 3
LEASE_TTL_S = 8.0
"""The default of `forebay.lease.ttl.ms`."""
READY_S_MAX = 60.0
CREATE_S_MAX = 60.0
SETTINGS = {
    # What brokers have when nobody sets anything, where tests have something quicker.
    "forebay.flush.policy": "ack",
    "forebay.lease.ttl.ms": int(LEASE_TTL_S * 1000),
    # Leaders stay where a measurement has put them.
    "auto.leader.rebalance.enable": False,
}


def _ignore(_error: KafkaError) -> None:
    """A broker that is down is no news here."""


LIBRARY: dict[str, Any] = {"log_level": 0, "error_cb": _ignore}
"""Of every client here; all else is what the library does unless it is told otherwise."""


class BenchCluster:
    def __init__(self, scratch: Path, name: str) -> None:
        self._cluster = Cluster(BROKERS, settings=SETTINGS, data_dir=scratch / name)

    def __enter__(self) -> Self:
        self._cluster.open()
        self._admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers, **LIBRARY})
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    # -- as one server ---------------------------------------------------------------------------------

    leader = 1
    """The broker that leads what is under load."""

    @property
    def address(self) -> Address:
        host, _, port = self._cluster.address(self.leader).rpartition(":")
        return host, int(port)

    def cpu_s(self) -> float:
        return sum(self.cpu_s_of_each().values())

    # -- as a cluster ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    def cpu_s_of_each(self) -> dict[int, float]:
        return {node: process_cpu_s(self._cluster.pid(node)) for node in self._cluster.running}

    def kill(self, node: int) -> None:
        self._cluster.kill(node)

    def stop(self, node: int) -> None:
        self._cluster.stop(node)

    def start(self, node: int) -> None:
        self._cluster.start(node)
        self._cluster.wait_until_ready()

    def create_topic(self, name: str, partitions: int, *, leaders: int = BROKERS) -> None:
        """A replica on every broker, the first `leaders` of which lead in turns; returns once in sync."""
        nodes = self._cluster.node_ids
        replicas = [_rotated(nodes, number % leaders) for number in range(partitions)]
        topic = NewTopic(name, partitions, replica_assignment=replicas)
        self._admin.create_topics([topic])[name].result(CREATE_S_MAX)
        self.wait_until_in_sync(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(CREATE_S_MAX)

    def elect_preferred(self, topic: str, partitions: int) -> None:
        """Leadership goes back to where `create_topic` has put it."""
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        self._admin.elect_leaders(ElectionType.PREFERRED, wanted).result(CREATE_S_MAX)
        first = {number: part.replicas[0] for number, part in self._partitions(topic).items()}
        wait_until(lambda: self.leaders(topic) == first, f"the first replicas of {topic} to lead")

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition."""
        return {number: part.leader for number, part in self._partitions(topic).items()}

    def wait_until_in_sync(self, topic: str, partitions: int) -> None:
        def in_sync() -> bool:
            found = self._partitions(topic)
            return len(found) == partitions and all(len(part.isrs) == BROKERS for part in found.values())

        wait_until(in_sync, f"all replicas of {topic} to be in sync")

    def _partitions(self, topic: str) -> dict[int, Any]:
        found: TopicMetadata = self._admin.list_topics(topic, timeout=READY_S_MAX).topics[topic]
        return {} if found.error is not None else dict(found.partitions)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"waited {READY_S_MAX:.0f} s in vain for {what}")
        time.sleep(0.05)


def _rotated(nodes: list[int], by: int) -> list[int]:
    return nodes[by:] + nodes[:by]
