"""Three brokers by their number of partitions, three replicas each: one is killed, and comes back."""

from __future__ import annotations

import time
from pathlib import Path

from bench.cluster import BROKERS, ForebayCluster, wait_until
from bench.scale.curve import Row
from bench.server import BenchError

SIZES = (1_000, 3_000, 10_000)
PER_TOPIC = 1_000
VICTIM = 1
LED_S_MAX = 120.0
REST_S = 3.0
SETTINGS = {"forebay.failover.verdicts.per.minute": 60}


def failover_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_measure(scratch, size) for size in sizes]


def _measure(scratch: Path, size: int) -> Row:
    row: Row = {"partitions": size}
    with ForebayCluster(scratch, f"failover-{size}", SETTINGS) as cluster:
        before = cluster.rss_bytes()
        names = [f"wide-{number}" for number in range(size // PER_TOPIC)]
        began_s, cpu_s = time.perf_counter(), cluster.cpu_s()
        for name in names:
            cluster.create_topic(name, PER_TOPIC)
        row["create: s"], row["create: CPU s"] = time.perf_counter() - began_s, cluster.cpu_s() - cpu_s
        time.sleep(REST_S)
        row["KB for a replica"] = (cluster.rss_bytes() - before) / size / BROKERS / 1000
        began_s, cpu_each = time.perf_counter(), cluster.cpu_s_of_each()
        cluster.kill(VICTIM)
        _wait_until_led(cluster, names)
        row["all led after kill -9: s"] = time.perf_counter() - began_s
        row["CPU s of a survivor"] = max(
            spent - cpu_each[node] for node, spent in cluster.cpu_s_of_each().items()
        )
        wait_until(lambda: bool(cluster.failovers()), "the times of the failover to be written down")
        seen = cluster.failovers()[-1]
        row |= {"noticed: ms": seen.detect_ms, "elected: ms": seen.fence_ms + seen.elect_ms}
        row["announced: ms"] = seen.announce_ms
        began_s = time.perf_counter()
        cluster.start(VICTIM)
        row["start again: s"] = time.perf_counter() - began_s
        for name in names:
            cluster.wait_until_in_sync(name, PER_TOPIC)
        row["in sync again: s"] = time.perf_counter() - began_s
    print(f"  {row}", flush=True)
    return row


def _wait_until_led(cluster: ForebayCluster, names: list[str]) -> None:
    deadline, left = time.monotonic() + LED_S_MAX, list(names)
    while left:
        if time.monotonic() > deadline:
            raise BenchError(f"{len(left)} topics have partitions without a leader after {LED_S_MAX:.0f} s")
        if all(leader not in (VICTIM, -1) for leader in cluster.leaders(left[-1]).values()):
            left.pop()
        else:
            time.sleep(0.1)
