"""A cluster of three brokers under load: one is killed, one is stopped, one joins, and nothing is lost.

Everything runs on this machine: etcd and the brokers are child processes on free ports of the loopback
interface, and their data is gone afterwards.
"""

from __future__ import annotations

import subprocess
import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from rich.table import Table

from cluster_traffic import PATIENCE_SECONDS, TOPIC, Billing, Orders
from demo_stage import Failed, console, step
from forebay.errors import ForebayError
from forebay.testing import Cluster

PARTITIONS = 6
LEASE_SECONDS = 6
SETTINGS = {"forebay.lease.ttl.ms": LEASE_SECONDS * 1000}
RACKS = ("rack-a", "rack-b", "rack-c")
MEMBERS = 2


class View:
    """What the cluster says about the topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

    def create_topic(self) -> None:
        self._admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(PATIENCE_SECONDS)
        self.wait_until_in_sync()

    def leader(self) -> int:
        leader: int = self._partitions()[0].leader
        return leader

    def wait_until_in_sync(self) -> float:
        """Seconds until every replica has everything again."""
        begun = time.perf_counter()
        while any(len(part.isrs) < len(part.replicas) for part in self._partitions().values()):
            if time.perf_counter() - begun > PATIENCE_SECONDS:
                raise Failed("the replicas do not come back in sync")
            time.sleep(0.05)
        return time.perf_counter() - begun

    def show(self) -> None:
        """One row per broker: what it leads, what it has a copy of."""
        parts = self._partitions().values()
        table = Table(box=None, padding=(0, 2), header_style="bold")
        for heading in ("broker", "address", "leads partitions of orders", "in sync", "of copies"):
            table.add_column(heading, justify="left" if heading.startswith(("add", "leads")) else "right")
        for node in self._cluster.node_ids:
            leads = ", ".join(str(part.id) for part in parts if part.leader == node)
            in_sync = sum(node in part.isrs for part in parts)
            copies = sum(node in part.replicas for part in parts)
            state = leads if node in self._cluster.running else "[red]down[/]"
            table.add_row(str(node), self._cluster.address(node), state, str(in_sync), str(copies))
        console.print(table)

    def _partitions(self) -> dict[int, PartitionMetadata]:
        return dict(self._admin.list_topics(TOPIC, timeout=PATIENCE_SECONDS).topics[TOPIC].partitions)


def demo(cluster: Cluster) -> None:
    view = View(cluster)
    view.create_topic()
    step(f"created topic {TOPIC}: {PARTITIONS} partitions, each on three brokers in three racks")
    view.show()
    with Billing(cluster.bootstrap_servers, MEMBERS) as billing, Orders(cluster.bootstrap_servers) as orders:
        orders.wait_for_more(1_000)
        orders.longest_wait_s()  # the first orders had to wait for connections
        orders.wait_for_more(3_000)
        wait_ms = orders.longest_wait_s() * 1000
        step(f"a producer with acks=all, a group of {MEMBERS}; the slowest order took {wait_ms:.0f} ms")
        kill_a_leader(cluster, view, orders)
        stop_a_leader(cluster, view, orders)
        add_a_broker(cluster, view, orders)
        orders.stop()
        check(cluster, orders, billing)


def kill_a_leader(cluster: Cluster, view: View, orders: Orders) -> None:
    node = view.leader()
    cluster.kill(node)
    step(f"[bold red]killed broker {node}[/] (kill -9); its lease of {LEASE_SECONDS} s has to run out")
    while view.leader() in (node, -1):
        time.sleep(0.05)
    orders.wait_for_more(2_000)
    step(f"others lead now; the longest that an order had to wait: {orders.longest_wait_s():.1f} s")
    view.show()
    cluster.start(node)
    step(f"started broker {node} again: in sync after {view.wait_until_in_sync():.1f} s")
    orders.longest_wait_s()


def stop_a_leader(cluster: Cluster, view: View, orders: Orders) -> None:
    node = view.leader()
    cluster.stop(node)
    orders.wait_for_more(1_000)
    wait_ms = orders.longest_wait_s() * 1000
    step(f"stopped broker {node} as a service is stopped: it hands over first; longest wait {wait_ms:.0f} ms")
    cluster.start(node)
    view.wait_until_in_sync()


def add_a_broker(cluster: Cluster, view: View, orders: Orders) -> None:
    node = cluster.add("rack-a")
    cluster.wait_until_ready()
    step(f"broker {node} joined, empty; [bold]forebay cluster rebalance[/] gives it its share")
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    command = [sys.executable, "-m", "forebay", "cluster", "rebalance", *servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False)
    if done.returncode:
        raise Failed(f"forebay cluster rebalance: {done.stderr or done.stdout}")
    view.wait_until_in_sync()
    orders.wait_for_more(1_000)
    view.show()


def check(cluster: Cluster, orders: Orders, billing: Billing) -> None:
    if orders.errors:
        raise Failed(f"{orders.errors} orders were refused for good")
    stored = read_all(cluster.bootstrap_servers)
    lost = len(orders.acknowledged - set(stored))
    doubled = len(stored) - len(set(stored))
    if lost or doubled:
        raise Failed(f"{lost} orders lost, {doubled} stored twice")
    step(f"read everything: {len(orders.acknowledged):,} orders acknowledged, none lost, none doubled")
    billing.wait_for(orders.acknowledged)
    missed = len(orders.acknowledged - billing.read.keys())
    if missed:
        raise Failed(f"the group missed {missed} orders")
    again = sum(billing.read.values()) - len(billing.read)
    step(f"the group has read every one of them, {again:,} a second time after a failure (at-least-once)")


def read_all(servers: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    numbers: list[int] = []
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < PARTITIONS:
        if time.monotonic() > deadline:
            raise Failed("the end of the topic was not reached in time")
        for message in consumer.consume(1_000, 0.1):
            error = message.error()
            if error is None:
                numbers.append(int(message.value() or b"0"))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
    consumer.close()
    return numbers


def main() -> int:
    begun = time.perf_counter()
    try:
        with Cluster(brokers=3, racks=RACKS, settings=SETTINGS) as cluster:
            step(f"started etcd and three brokers in {time.perf_counter() - begun:.1f} s")
            demo(cluster)
    except (Failed, ForebayError) as failure:
        console.print(f"[bold red]the demo failed:[/] {failure}")
        return 1
    console.print(f"[bold green]all as promised[/], in {time.perf_counter() - begun:.1f} s")
    console.print("Try it yourself: [bold].venv/bin/forebay cluster start --brokers 3[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
