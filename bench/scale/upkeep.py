"""What operators do to a large cluster under load: a restart of each broker in turn, and moving partitions.

Clients with the settings of their library, but for the size of batches, write to partitions of all brokers
and read them. Every message is counted: sent, acknowledged, read, and refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.cluster import BROKERS, ForebayCluster
from bench.failover import Traffic
from bench.scale.curve import Row
from bench.scale.etcd_cost import EtcdCost
from bench.scale.failover import PER_TOPIC, create_wide
from bench.server import BenchError
from forebay.core.cluster.replicas.balancing import drain
from forebay.operations.client import Client
from forebay.operations.cluster.cluster_state import read_image
from forebay.operations.cluster.reassignments import carry_out
from forebay.operations.wire import WireConnection

RESTART_SIZES = (1_000, 3_000, 10_000)
MOVE_SIZES = (100, 300, 1_000)
LOADED = 30
"""Partitions under load, ten of each broker."""
SETTLE_S = 2.0
AT_ONCE = 100
MOVE_S_MAX = 300


def restart_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_restart(scratch, size) for size in sizes]


def _restart(scratch: Path, size: int) -> Row:
    row: Row = {"partitions": size}
    with ForebayCluster(scratch, f"restart-{size}") as cluster:
        names = create_wide(cluster, size)
        cluster.create_topic("loaded", LOADED)
        before = EtcdCost.now(cluster.etcd)
        began_s = time.perf_counter()
        stop_s, start_s, in_sync_s = [0.0], [0.0], [0.0]
        with Traffic(cluster.bootstrap_servers, "loaded", range(LOADED)) as traffic:
            for node in range(1, BROKERS + 1):
                time.sleep(SETTLE_S)
                stop_s.append(_timed(partial(cluster.stop, node)))
                start_s.append(_timed(partial(cluster.start, node)))
                in_sync_s.append(_timed(partial(_wait_in_sync, cluster, names)))
            waits = traffic.settle()
        row |= {"all three: s": time.perf_counter() - began_s}
        row |= {"stop: s": max(stop_s), "start: s": max(start_s), "in sync: s": max(in_sync_s)}
        row |= {"messages": traffic.sent, "errors": waits.errors}
        row |= {"longest produce: s": waits.produce_s, "longest consume: s": waits.consume_s}
        row |= EtcdCost.now(cluster.etcd).since(before)
    print(f"  {row}", flush=True)
    return row


def _wait_in_sync(cluster: ForebayCluster, names: list[str]) -> None:
    for name in names:
        cluster.wait_until_in_sync(name, PER_TOPIC)
    cluster.wait_until_in_sync("loaded", LOADED)


def _timed(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def move_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_move(scratch, size) for size in sizes]


def _move(scratch: Path, size: int) -> Row:
    """A fourth broker joins, and the first is drained: all of its replicas go there."""
    row: Row = {"partitions": size}
    with ForebayCluster(scratch, f"moves-{size}") as cluster:
        cluster.create_topic("moved", size - LOADED)
        cluster.create_topic("loaded", LOADED)
        cluster.add()
        before, cpu_s = EtcdCost.now(cluster.etcd), cluster.cpu_s()
        with Traffic(cluster.bootstrap_servers, "loaded", range(LOADED)) as traffic:
            time.sleep(SETTLE_S)
            began_s = time.perf_counter()
            shown = _drain(cluster, 1)
            row["moved: s"] = time.perf_counter() - began_s
            waits = traffic.settle()
        row |= {"counts of progress": shown, "brokers: CPU s": cluster.cpu_s() - cpu_s}
        row |= {"messages": traffic.sent, "errors": waits.errors}
        row |= {"longest produce: s": waits.produce_s, "longest consume: s": waits.consume_s}
        row |= EtcdCost.now(cluster.etcd).since(before)
        left = [number for number, nodes in cluster.replicas("moved").items() if 1 in nodes]
        if left:
            raise BenchError(f"{len(left)} partitions were not moved")
    print(f"  {row}", flush=True)
    return row


def _drain(cluster: ForebayCluster, node: int) -> int:
    """As `forebay cluster drain` does it; how many different counts an operator has seen."""
    seen: set[int] = set()
    with WireConnection.open(Client(bootstrap=cluster.bootstrap_servers)) as connection:
        moves = drain(read_image(connection), node)
        carry_out(connection, moves, at_once=AT_ONCE, seconds_max=MOVE_S_MAX, show=seen.add)
    return len(seen)
