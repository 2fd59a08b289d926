"""Produce with acks=all on a cluster of three brokers, beside a single broker on the same machine.

The single broker gets the same requests with acks=1, which it answers without waiting for a disk: what it
does for a message is then just what the leader does, without the followers. All three brokers, the single
one and the load share one machine, so the cluster does three times the work on the same cores.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import NamedTuple

from bench.client import Client
from bench.cluster import ForebayCluster
from bench.frames import (
    KB64_BATCH,
    KB64_BATCH_RECORDS,
    MB_BATCH,
    MB_BATCH_RECORDS,
    produce_stream,
)
from bench.load import Measure, Rounds, run_load
from bench.report import Figure
from bench.rounds import produce_64kb, produce_mb
from bench.server import BenchError
from bench.suite import Suite

ACKS_ALL = -1
ROUND_S = 1.5
ROUND_BYTES_MAX = 1_200_000_000
THROUGHPUT_SHARE = 0.25
CPU_FACTOR = 4.0
_names = (f"replicated-{number}" for number in itertools.count())


class Size(NamedTuple):
    batch: bytes
    records: int


SIZES = {"1 MB": Size(MB_BATCH, MB_BATCH_RECORDS), "64 KB": Size(KB64_BATCH, KB64_BATCH_RECORDS)}
SINGLE = {"1 MB": produce_mb, "64 KB": produce_64kb}


def replication_figures(suite: Suite) -> list[Figure]:
    single: dict[str, Rounds] = defaultdict(Rounds)
    replicated: dict[str, Rounds] = defaultdict(Rounds)
    with ForebayCluster(suite.scratch, "cluster") as cluster:
        for _ in suite.each_round("replicated produce"):
            for name, size in SIZES.items():
                single[name].append(SINGLE[name](suite.broker, 1))
                replicated[name].append(produce(cluster, size))
    return [figure for name in SIZES for figure in _figures(name, replicated[name], single[name])]


def produce(cluster: ForebayCluster, size: Size) -> Measure:
    """One connection to one leader; what is acknowledged must be there in the end."""
    topic = next(_names)
    cluster.create_topic(topic, 1, leaders=1)
    stream = produce_stream(topic, size.batch, acks=ACKS_ALL, seconds=ROUND_S, bytes_max=ROUND_BYTES_MAX)
    measure = run_load(cluster, [stream])
    with Client(cluster.address) as client:
        stored, probes = client.end_offset(topic), 1
    if stored != (measure.requests + probes) * size.records:
        raise BenchError(f"{stored} records are stored of {measure.requests + probes} acknowledged batches")
    cluster.delete_topic(topic)
    return measure


def _figures(name: str, replicated: Rounds, single: Rounds) -> list[Figure]:
    return [
        Figure(
            group="replication",
            name=f"produce {name}, 3 replicas, acks=all",
            value=replicated.median("mb_per_s"),
            unit="MB/s",
            limit=single.median("mb_per_s"),
            limit_name="single broker",
            at_least=THROUGHPUT_SHARE,
        ),
        Figure(
            group="replication",
            name=f"produce {name}, 3 replicas, CPU of all brokers",
            value=replicated.median("cpu_s_per_gb"),
            unit="s/GB",
            limit=single.median("cpu_s_per_gb"),
            limit_name="single broker",
            at_most=CPU_FACTOR,
        ),
    ]
