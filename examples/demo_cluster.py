"""The second chapter: three brokers under load. One is killed, one is stopped, one joins, nothing is lost.

Everything runs on this machine: etcd and the brokers are child processes on free ports of the loopback
interface, and their data is gone afterwards.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from demo_load import check, read_all
from demo_stage import (
    PATIENCE_SECONDS,
    TOPIC,
    Facts,
    Failed,
    Skipped,
    console,
    step,
    table,
    until,
    waiting,
)
from demo_traffic import ORDERS_PER_SECOND, Billing, Orders
from forebay.local.etcd import EtcdFailed, find_etcd
from forebay.testing import Cluster

PARTITIONS = 6
LEASE_SECONDS = 6
SETTINGS = {"forebay.lease.ttl.ms": LEASE_SECONDS * 1000}
RACKS = ("rack-a", "rack-b", "rack-c")
MEMBERS = 2
ASK_SECONDS = 5


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

    def replicas_on(self, node: int) -> int:
        return sum(node in part.replicas for part in self._partitions().values())

    def wait_until_in_sync(self) -> float:
        """Seconds until every replica has everything again."""
        begun = time.perf_counter()
        until(
            lambda: all(len(part.isrs) == len(part.replicas) for part in self._partitions().values()),
            "all replicas are in sync",
        )
        return time.perf_counter() - begun

    def show(self) -> None:
        """One row per broker: what it leads, what it has a copy of."""
        parts = self._partitions().values()
        shown = table("broker", "address", "leads partitions of orders", "in sync", "of copies", words=3)
        for node in self._cluster.node_ids:
            leads = ", ".join(str(part.id) for part in parts if part.leader == node)
            in_sync = sum(node in part.isrs for part in parts)
            copies = sum(node in part.replicas for part in parts)
            state = leads if node in self._cluster.running else "[red]down[/]"
            shown.add_row(str(node), self._cluster.address(node), state, str(in_sync), str(copies))
        console.print(shown)

    def _partitions(self) -> dict[int, PartitionMetadata]:
        """librdkafka does not send a question again that a broker took before it was killed: ask anew."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return dict(self._admin.list_topics(TOPIC, timeout=ASK_SECONDS).topics[TOPIC].partitions)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise


def play(short: bool) -> Facts:
    try:
        find_etcd()
    except EtcdFailed as missing:
        raise Skipped(str(missing)) from None
    begun = time.perf_counter()
    with contextlib.ExitStack() as stack:
        with waiting("starting etcd and three brokers"):
            cluster = stack.enter_context(Cluster(brokers=3, racks=RACKS, settings=SETTINGS))
        started = f"{time.perf_counter() - begun:.1f} s"
        step(f"started etcd and three brokers in {started}: {cluster.bootstrap_servers}")
        return [("etcd and three brokers start", started), *_play(cluster, short)]


def _play(cluster: Cluster, short: bool) -> Facts:
    view = View(cluster)
    view.create_topic()
    step(f"created topic {TOPIC}: {PARTITIONS} partitions, each on three brokers in three racks")
    view.show()
    with Billing(cluster.bootstrap_servers, MEMBERS) as billing, Orders(cluster.bootstrap_servers) as orders:
        orders.wait_for_more(1_000)
        orders.longest_wait_s()  # the first orders had to wait for connections
        orders.wait_for_more(1_000)
        step(
            f"{ORDERS_PER_SECOND:,} orders a second, acks=all, and a group of {MEMBERS} that reads them; "
            f"the slowest order took {orders.longest_wait_s() * 1000:.0f} ms"
        )
        facts = kill_a_leader(cluster, view, orders)
        if not short:
            facts += stop_a_leader(cluster, view, orders)
            facts += add_a_broker(cluster, view, orders)
        orders.finish()
        return [*facts, *check_all(cluster, orders, billing)]


def kill_a_leader(cluster: Cluster, view: View, orders: Orders) -> Facts:
    node = view.leader()
    cluster.kill(node)
    step(f"[bold red]killed broker {node}[/] (kill -9), the leader of partition 0")
    with waiting(f"its lease of {LEASE_SECONDS} s has to run out; then followers lead that have everything"):
        until(lambda: view.leader() not in (node, -1), "another broker leads")
        orders.wait_for_more(1_000)
    waited_s = orders.longest_wait_s()
    step(f"others lead now; the longest that an order had to wait: {waited_s:.1f} s")
    view.show()
    with waiting(f"broker {node} comes back and fetches what it missed"):
        cluster.start(node)
        seconds = view.wait_until_in_sync()
    step(f"started broker {node} again: in sync after {seconds:.1f} s")
    orders.longest_wait_s()
    return [("kill -9 of a leader, under load", f"the slowest order waited {waited_s:.1f} s, none failed")]


def stop_a_leader(cluster: Cluster, view: View, orders: Orders) -> Facts:
    node = view.leader()
    with waiting(f"broker {node} hands over"):
        cluster.stop(node)
        orders.wait_for_more(1_000)
    waited = f"{orders.longest_wait_s() * 1000:.0f} ms"
    step(f"stopped broker {node} as a service is stopped: it hands over first; longest wait {waited}")
    with waiting(f"broker {node} comes back"):
        cluster.start(node)
        view.wait_until_in_sync()
    return [("stop of a leader, under load", f"the slowest order waited {waited}")]


def add_a_broker(cluster: Cluster, view: View, orders: Orders) -> Facts:
    with waiting("a fourth broker joins"):
        node = cluster.add("rack-a")
        cluster.wait_until_ready()
    step(f"broker {node} joined, empty; [bold]forebay cluster rebalance[/] gives it its share")
    servers = ["--bootstrap-server", cluster.bootstrap_servers]
    command = [sys.executable, "-m", "forebay", "cluster", "rebalance", *servers]
    with waiting("moving replicas"):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * PATIENCE_SECONDS, check=False
        )
        if done.returncode:
            raise Failed(f"forebay cluster rebalance: {done.stderr or done.stdout}")
        view.wait_until_in_sync()
        orders.wait_for_more(1_000)
    view.show()
    return [("a fourth broker joins", f"it has {view.replicas_on(node)} replicas after a rebalance")]


def check_all(cluster: Cluster, orders: Orders, billing: Billing) -> Facts:
    check(read_all(cluster.bootstrap_servers, partitions=PARTITIONS), orders.sent)
    outcome = f"{orders.sent:,} orders: none lost, none doubled, all in order"
    step(f"read everything: {outcome}")
    billing.wait_for(orders.sent)
    again = sum(billing.read.values()) - len(billing.read)
    step(f"the group has read every one of them, {again:,} a second time after a failure (at-least-once)")
    return [("read in the end", outcome)]
