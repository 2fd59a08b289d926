"""A cluster under measurement: three brokers on this machine, Forebay's or Apache Kafka's.

To a load generator it looks like one server: its address is that of the broker that leads, its CPU time is
that of all brokers together. The etcd of Forebay's brokers has no part in messages and is not counted.
"""

from __future__ import annotations

import compileall
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from bench.client import Client
from bench.server import ROOT, Address, BenchError, WayIn, process_cpu_s, process_status_bytes
from forebay.local.cluster import Cluster
from forebay.local.etcd import EtcdCluster
from forebay.wire.messages.api_versions import OWN_SOFTWARE_NAME, ApiVersionsRequest
from forebay.wire.messages.describe_failovers import DescribedFailover, DescribeFailoversRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

BROKERS = 3
LEASE_TTL_S = 8.0
"""The default of `forebay.lease.ttl.ms`."""
READY_S_MAX = 60.0
ASK_S_MAX = 5.0
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


class BenchCluster(ABC):
    """What both kinds have in common: processes, and what an administrator can ask of them."""

    name: str
    start_s: float
    """From the command until every broker serves."""
    leader = 1
    """The broker that leads what is under load."""

    def __enter__(self) -> Self:
        self._prepare()
        started = time.perf_counter()
        self._open()
        self.start_s = time.perf_counter() - started
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, **LIBRARY})
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @abstractmethod
    def _prepare(self) -> None:
        """What is done once and is no part of starting."""

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...

    @property
    @abstractmethod
    def addresses(self) -> dict[int, str]:
        """HOST:PORT of every broker by its node id, running or not."""

    @abstractmethod
    def pids(self) -> dict[int, int]:
        """Of the brokers that run."""

    @abstractmethod
    def kill(self, node: int) -> None: ...

    # -- as one server ---------------------------------------------------------------------------------

    @property
    def address(self) -> Address:
        host, _, port = self.addresses[self.leader].rpartition(":")
        return host, int(port)

    @property
    def way_in(self) -> WayIn:
        return WayIn(self.address)

    def cpu_s(self) -> float:
        return sum(self.cpu_s_of_each().values())

    # -- as a cluster ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses.values())

    def cpu_s_of_each(self) -> dict[int, float]:
        return {node: process_cpu_s(pid) for node, pid in self.pids().items()}

    def rss_bytes(self) -> int:
        """Of all brokers together."""
        return sum(process_status_bytes(pid, "VmRSS") for pid in self.pids().values())

    def create_topic(self, name: str, partitions: int, *, leaders: int = BROKERS) -> None:
        """A replica on every broker, the first `leaders` of which lead in turns; returns once in sync."""
        nodes = sorted(self.addresses)
        replicas = [_rotated(nodes, number % leaders) for number in range(partitions)]
        topic = NewTopic(name, partitions, replica_assignment=replicas)
        self._admin.create_topics([topic])[name].result(CREATE_S_MAX)
        self.wait_until_in_sync(name, partitions)

    def create_spread_topic(self, name: str, partitions: int) -> None:
        """Three replicas each, where the brokers put them; returns once in sync."""
        self._admin.create_topics([NewTopic(name, partitions, BROKERS)])[name].result(CREATE_S_MAX)
        self.wait_until_in_sync(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._admin.delete_topics([name])[name].result(CREATE_S_MAX)

    def elect_preferred(self, topic: str, partitions: int) -> None:
        """Leadership goes back to where `create_topic` has put it."""
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        self._admin.elect_leaders(ElectionType.PREFERRED, wanted).result(CREATE_S_MAX)
        first = {number: part.replicas[0] for number, part in self._partitions(topic).items()}
        wait_until(lambda: self.leaders(topic) == first, f"the first replicas of {topic} to lead")

    def controller(self) -> int:
        return int(self._admin.list_topics(timeout=READY_S_MAX).controller_id)

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition."""
        return {number: part.leader for number, part in self._partitions(topic).items()}

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition."""
        return {number: list(part.replicas) for number, part in self._partitions(topic).items()}

    def wait_until_in_sync(self, topic: str, partitions: int) -> None:
        def in_sync() -> bool:
            found = self._partitions(topic)
            return len(found) == partitions and all(len(part.isrs) == BROKERS for part in found.values())

        wait_until(in_sync, f"all replicas of {topic} to be in sync")

    def _partitions(self, topic: str) -> dict[int, Any]:
        """librdkafka asks the broker that it has chosen until its time is over, also one that was killed just
        then: so it gets little time, and has to choose anew."""
        deadline = time.monotonic() + READY_S_MAX
        while True:
            try:
                found: TopicMetadata = self._admin.list_topics(topic, timeout=ASK_S_MAX).topics[topic]
                return {} if found.error is not None else dict(found.partitions)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise


class ForebayCluster(BenchCluster):
    name = "Forebay"

    def __init__(
        self,
        scratch: Path,
        name: str,
        settings: Mapping[str, object] | None = None,
        *,
        brokers: int = BROKERS,
    ) -> None:
        self._scratch, self._label, self._brokers = scratch, name, brokers
        self._settings = {**SETTINGS, **(settings or {})}

    def _prepare(self) -> None:
        # As an installed program has it.
        compileall.compile_dir(str(ROOT / "src"), quiet=1, workers=0)
        self._cluster = Cluster(self._brokers, settings=self._settings, data_dir=self._scratch / self._label)

    def _open(self) -> None:
        self._cluster.open()

    def _close(self) -> None:
        self._cluster.close()

    @property
    def addresses(self) -> dict[int, str]:
        return {node: self._cluster.address(node) for node in self._cluster.node_ids}

    def pids(self) -> dict[int, int]:
        return {node: self._cluster.pid(node) for node in self._cluster.running}

    def kill(self, node: int) -> None:
        self._cluster.kill(node)

    def stop(self, node: int) -> None:
        self._cluster.stop(node)

    def start(self, node: int) -> None:
        self._cluster.start(node)
        self._cluster.wait_until_ready()

    def add(self) -> int:
        """Start one more broker, empty; returns its node id."""
        node = self._cluster.add()
        self._cluster.wait_until_ready()
        return node

    @property
    def etcd(self) -> EtcdCluster:
        return self._cluster.etcd

    def leaders_seen_by(self, node: int, topic: str) -> list[int]:
        """The leaders of all partitions as one broker shows them, without a library that looks elsewhere."""
        host, _, port = self.addresses[node].rpartition(":")
        with contextlib.closing(Client((host, int(port)))) as client:
            answer = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
            return [partition.leader_id for partition in answer.topics[0].partitions]

    def failovers(self) -> list[DescribedFailover]:
        """What the brokers have measured of those that were counted as dead, the newest last."""
        host, _, port = self.addresses[self._cluster.running[0]].rpartition(":")
        with contextlib.closing(Client((host, int(port)))) as client:
            client.ask(ApiVersionsRequest(client_software_name=OWN_SOFTWARE_NAME))  # who may ask the next
            found: list[DescribedFailover] = client.ask(DescribeFailoversRequest()).failovers
        return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"waited {READY_S_MAX:.0f} s in vain for {what}")
        time.sleep(0.05)


def _rotated(nodes: list[int], by: int) -> list[int]:
    return nodes[by:] + nodes[:by]
