"""A cluster that can be hurt in every way: processes, network, etcd and disks (`links.py` is its network)."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from confluent_kafka import KafkaException

from forebay.local.cluster import Cluster
from support.clients.kafka_clients import confluent_admin
from support.faults.links import CLIENTS, Link, Links, broker_name

BROKERS = 3
ETCD_SERVERS = 3
LEASE_SECONDS = 6.0
DISK_BYTES = 256 << 20
SETTINGS = {
    "forebay.lease.ttl.ms": int(LEASE_SECONDS * 1000),
    "replica.lag.time.max.ms": 4_000,
    "leader.imbalance.check.interval.seconds": 5,
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.heartbeat.interval.ms": 200,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}
_HEALTHY_SECONDS_MAX = 60.0
_MOUNT_SECONDS = 20.0


class ChaosCluster(Cluster):
    """Brokers advertise their doors, and know etcd by doors of their own, so that any link can be held."""

    def __init__(self, links: Links, data_dir: Path, *, small_disks: bool) -> None:
        super().__init__(BROKERS, settings=SETTINGS, etcd_servers=ETCD_SERVERS, data_dir=data_dir)
        self.links = links
        self.small_disks = small_disks
        self._doors: dict[int, str] = {}
        self._etcd_urls: dict[int, str] = {}

    @property
    def well(self) -> list[int]:
        """The brokers that run, and are not paused."""
        return [node for node in self.running if node not in self.paused]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self._doors.values())

    def broker_settings(self, node_id: int) -> dict[str, str]:
        if node_id not in self._doors:
            name = broker_name(node_id)
            self._doors[node_id] = self.links.door(name, lambda: self.address(node_id))
            self._etcd_urls[node_id] = self._etcd_url(name)
        return {
            **super().broker_settings(node_id),
            "advertised.listeners": f"PLAINTEXT://{self._doors[node_id]}",
            "forebay.cluster": self._etcd_urls[node_id],
        }

    def _etcd_url(self, source: str) -> str:
        doors = [
            self.links.door(server.name, lambda server=server: server.endpoint, source)  # type: ignore[misc]
            for server in self.etcd.servers
        ]
        return f"etcd://{','.join(doors)}/chaos"

    # -- links -----------------------------------------------------------------------------------------

    def links_to_brokers(self, node_id: int) -> list[Link]:
        """Both ways, between a broker and all others."""
        return _both_ways(broker_name(node_id), (broker_name(n) for n in self.node_ids if n != node_id))

    def links_to_etcd(self, node_id: int) -> list[Link]:
        return _both_ways(broker_name(node_id), (server.name for server in self.etcd.servers))

    def links_to_clients(self, node_id: int) -> list[Link]:
        return _both_ways(broker_name(node_id), [CLIENTS])

    def all_links(self) -> list[Link]:
        return [
            link
            for node in self.node_ids
            for links in (self.links_to_brokers(node), self.links_to_etcd(node), self.links_to_clients(node))
            for link in links
        ]

    # -- disks -----------------------------------------------------------------------------------------

    def fill_disk(self, node_id: int) -> None:
        """Until nothing more goes on the small disk of this broker."""
        with self._ballast(node_id).open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 20))
        with self._ballast(node_id).open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(512))

    def empty_disk(self, node_id: int) -> None:
        self._ballast(node_id).unlink(missing_ok=True)

    def lose_disk(self, node_id: int) -> None:
        """Everything in the data directory of a broker that does not run is gone."""
        assert node_id not in self.running
        for path in self.broker_data_dir(node_id).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _ballast(self, node_id: int) -> Path:
        return self.broker_data_dir(node_id) / "ballast"

    # -- health ----------------------------------------------------------------------------------------

    def wait_until_healthy(self) -> None:
        """Until every replica of every partition is in sync; raises AssertionError."""
        deadline = time.monotonic() + _HEALTHY_SECONDS_MAX
        while problem := self._problem():
            assert time.monotonic() < deadline, f"the cluster does not recover: {problem}"
            time.sleep(0.1)

    def _problem(self) -> str:
        """As every broker sees it; empty when there is none."""
        for node in self.node_ids:
            try:
                found = confluent_admin(self.address(node)).list_topics(timeout=5.0)
            except KafkaException as error:
                return f"broker {node} does not answer: {error}"
            if len(found.brokers) < len(self.node_ids):
                return f"broker {node} knows only brokers {sorted(found.brokers)}"
            for topic in found.topics.values():
                for part in topic.partitions.values():
                    if part.leader < 0 or len(part.isrs) < len(part.replicas):
                        return (
                            f"{topic.topic}-{part.id} as broker {node} sees it: leader {part.leader}, "
                            f"replicas {part.replicas}, in sync {part.isrs}"
                        )
        return ""


def _both_ways(one: str, others: Iterable[str]) -> list[Link]:
    return [link for other in others for link in ((one, other), (other, one))]


@contextlib.contextmanager
def small_disks(data_dir: Path) -> Iterator[bool]:
    """A small file system for each broker; False where this machine, or this user, cannot have them."""
    mounted: list[Path] = []
    try:
        yield os.geteuid() == 0 and all(_mount(data_dir, node, mounted) for node in range(1, BROKERS + 1))
    finally:
        for path in mounted:
            subprocess.run(["umount", "-l", str(path)], check=True, timeout=_MOUNT_SECONDS)


def _mount(data_dir: Path, node_id: int, mounted: list[Path]) -> bool:
    path = data_dir / f"broker-{node_id}"
    path.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=_MOUNT_SECONDS)
    if done.returncode == 0:
        mounted.append(path)
    return done.returncode == 0


@contextlib.contextmanager
def chaos_cluster(data_dir: Path) -> Iterator[ChaosCluster]:
    with small_disks(data_dir) as small, Links() as links:
        cluster = ChaosCluster(links, data_dir, small_disks=small)
        cluster.open()
        try:
            yield cluster
        finally:
            cluster.close()
