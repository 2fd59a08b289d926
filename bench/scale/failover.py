"""Three brokers by their number of partitions, three replicas each: one is killed, and comes back.

Apache Kafka is measured beside it, as far as a client can see: `kafka_failover_curve`.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.cluster import BROKERS, BenchCluster, ForebayCluster, wait_until
from bench.kafka_cluster import KafkaCluster
from bench.kafka_server import why_not
from bench.scale.curve import Row
from bench.scale.etcd_cost import EtcdCost
from bench.server import BenchError

SIZES = (1_000, 3_000, 10_000, 30_000)
KAFKA_SIZES = (3_000, 10_000)
PER_TOPIC = 1_000
VICTIM = 1
LED_S_MAX = 120.0
REST_S = 3.0
SETTINGS = {"forebay.failover.verdicts.per.minute": 60}


def failover_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_measure(scratch, size) for size in sizes]


def create_wide(cluster: BenchCluster, size: int) -> list[str]:
    """Topics of a thousand partitions each, with a replica on every broker; their names."""
    names = [f"wide-{number}" for number in range(size // PER_TOPIC)]
    for name in names:
        cluster.create_topic(name, PER_TOPIC)
    return names


def _measure(scratch: Path, size: int) -> Row:
    row: Row = {"partitions": size}
    with ForebayCluster(scratch, f"failover-{size}", SETTINGS) as cluster:
        before = cluster.rss_bytes()
        began_s, cpu_s = time.perf_counter(), cluster.cpu_s()
        names = create_wide(cluster, size)
        row["create: s"], row["create: CPU s"] = time.perf_counter() - began_s, cluster.cpu_s() - cpu_s
        time.sleep(REST_S)
        row["KB for a replica"] = (cluster.rss_bytes() - before) / size / BROKERS / 1000
        etcd, cpu_each = EtcdCost.now(cluster.etcd), cluster.cpu_s_of_each()
        row |= _kill(cluster, names)
        row["CPU s of a survivor"] = _most_spent(cluster, cpu_each)
        wait_until(lambda: bool(cluster.failovers()), "the times of the failover to be written down")
        seen = cluster.failovers()[-1]
        steps_ms = seen.detect_ms, seen.fence_ms + seen.elect_ms, seen.announce_ms
        row |= dict(zip(("noticed: ms", "elected: ms", "announced: ms"), steps_ms, strict=True))
        row["all led: s"] = sum(steps_ms) / 1000
        time.sleep(REST_S)
        row |= EtcdCost.now(cluster.etcd).since(etcd)
        began_s = time.perf_counter()
        cluster.start(VICTIM)
        row["start again: s"] = time.perf_counter() - began_s
        for name in names:
            cluster.wait_until_in_sync(name, PER_TOPIC)
        row["in sync again: s"] = time.perf_counter() - began_s
    print(f"  {row}", flush=True)
    return row


def kafka_failover_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    missing = why_not()
    if missing is not None:
        raise BenchError(missing)
    return [_measure_kafka(scratch, size) for size in sizes]


def _measure_kafka(scratch: Path, size: int) -> Row:
    row: Row = {"partitions": size}
    with KafkaCluster(scratch, f"kafka-failover-{size}") as cluster:
        before, began_s, cpu_s = cluster.rss_bytes(), time.perf_counter(), cluster.cpu_s()
        names = create_wide(cluster, size)
        row["create: s"], row["create: CPU s"] = time.perf_counter() - began_s, cluster.cpu_s() - cpu_s
        time.sleep(REST_S)
        row["MB more in all brokers"] = (cluster.rss_bytes() - before) / 1e6
        cpu_each = cluster.cpu_s_of_each()
        row |= _kill(cluster, names)
        row["CPU s of a survivor"] = _most_spent(cluster, cpu_each)
    print(f"  {row}", flush=True)
    return row


def _kill(cluster: BenchCluster, names: list[str]) -> Row:
    """How long it takes until a client sees a leader of every partition: of one topic that is among the last,
    as a client that uses it, and then of all topics in turn."""
    began_s = time.perf_counter()
    cluster.kill(VICTIM)
    _wait_until_led(cluster, names[-1:])
    one_s = time.perf_counter() - began_s
    _wait_until_led(cluster, names)
    return {"a client sees its topic led: s": one_s, "and all: s": time.perf_counter() - began_s}


def _most_spent(cluster: BenchCluster, before: dict[int, float]) -> float:
    return max(spent - before[node] for node, spent in cluster.cpu_s_of_each().items())


def _wait_until_led(cluster: BenchCluster, names: list[str]) -> None:
    deadline, left = time.monotonic() + LED_S_MAX, list(names)
    while left:
        if time.monotonic() > deadline:
            raise BenchError(f"{len(left)} topics have partitions without a leader after {LED_S_MAX:.0f} s")
        if all(leader not in (VICTIM, -1) for leader in cluster.leaders(left[-1]).values()):
            left.pop()
        else:
            time.sleep(0.1)
