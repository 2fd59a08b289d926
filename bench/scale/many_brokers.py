"""Many brokers on one etcd and one machine: what each costs at rest, and what the death of one costs all."""

from __future__ import annotations

import time
from pathlib import Path

from bench.cluster import ForebayCluster, wait_until
from bench.scale.curve import Row
from bench.scale.etcd_cost import EtcdCost

SIZES = (3, 10, 25, 50)
PARTITIONS_EACH = 20
REST_S = 10.0
VICTIM = 1
WITNESS = 2


def broker_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_measure(scratch, size) for size in sizes]


def _measure(scratch: Path, size: int) -> Row:
    row: Row = {"brokers": size}
    with ForebayCluster(scratch, f"brokers-{size}", brokers=size) as cluster:
        row["all ready: s"] = cluster.start_s
        cluster.create_spread_topic("spread", PARTITIONS_EACH * size)
        time.sleep(REST_S)
        before, cpu_s = EtcdCost.now(cluster.etcd), cluster.cpu_s()
        time.sleep(REST_S)
        row["MB each"] = cluster.rss_bytes() / size / 1e6
        row["idle CPU % each"] = 100 * (cluster.cpu_s() - cpu_s) / REST_S / size
        row["idle etcd CPU %"] = 100 * (EtcdCost.now(cluster.etcd).cpu_s - before.cpu_s) / REST_S
        before, began_s, cpu_each = EtcdCost.now(cluster.etcd), time.perf_counter(), cluster.cpu_s_of_each()
        cluster.kill(VICTIM)
        wait_until(
            lambda: {VICTIM, -1}.isdisjoint(cluster.leaders_seen_by(WITNESS, "spread")),
            "another leader of every partition",
        )
        row["all led after kill -9: s"] = time.perf_counter() - began_s
        spent = [after - cpu_each[node] for node, after in cluster.cpu_s_of_each().items()]
        row["CPU ms of each survivor"] = 1000 * sum(spent) / len(spent)
        row |= EtcdCost.now(cluster.etcd).since(before)
    print(f"  {row}", flush=True)
    return row
