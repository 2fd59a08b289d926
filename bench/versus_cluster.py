"""Three brokers of Forebay beside three of Apache Kafka: three replicas, acks=all, librdkafka, 1 KB messages.

Both clusters run throughout and take turns at every load; unmeasured passes come first, so that the JVMs have
compiled what they will run. Last of all a broker of each is killed, while the other cluster is gone.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from confluent_kafka import Consumer, TopicPartition

from bench.clients import CLIENT_S_MAX, in_child, measured, produce_many, produce_one_by_one
from bench.cluster import LIBRARY, BenchCluster, ForebayCluster
from bench.failover import LEAD_IN_S, VICTIM, Traffic
from bench.kafka_cluster import KafkaCluster
from bench.kafka_server import kafka_version
from bench.latency import Latency, percentiles
from bench.load import Measure, Rounds
from bench.machine import Neighbours, median_of
from bench.report import Figure
from bench.rounds import warm_page_cache
from bench.server import BenchError
from bench.suite import scratch_directory
from bench.versus import compared

ACKS_ALL = -1
LOAD_PARTITIONS = 6
FAILOVER_PARTITIONS = 60
WARM_UP_PASSES = 2
PRODUCE_S = 3.0
ROUND_TRIPS = 1500
SPEED_AT_LEAST = 1.5
COST_AT_MOST = 0.5
WAIT_AT_MOST = 1.0
Kind: TypeAlias = type[ForebayCluster] | type[KafkaCluster]
_names = (f"bench-{number:06}" for number in itertools.count(1))


@dataclass(slots=True)
class Side:
    """One of the two clusters and all that was measured of it."""

    kind: Kind
    cluster: BenchCluster
    produce: Rounds = field(default_factory=Rounds)
    latency: list[Latency] = field(default_factory=list)
    rss_mb: float = 0.0
    produce_wait_s: float = 0.0
    consume_wait_s: float = 0.0
    """The longest that any message had to wait when a broker was killed."""


def versus_cluster_figures(round_count: int) -> tuple[list[Figure], str]:
    with scratch_directory() as scratch:
        with contextlib.ExitStack() as clusters:
            sides = [
                Side(kind, clusters.enter_context(kind(scratch, kind.name.lower())))
                for kind in (ForebayCluster, KafkaCluster)
            ]
            for side in sides:
                print(f"  {side.cluster.name}: ready after {side.cluster.start_s:.1f} s", flush=True)
            # Not before the starts: the disk would be busy with it, and etcd waits for the disk.
            print("warming up the page cache", flush=True)
            warm_page_cache(scratch)
            _run(sides, round_count)
        for side in sides:
            side.produce_wait_s, side.consume_wait_s = _killed(scratch, side.kind)
    return _figures(*sides), kafka_version()


def _run(sides: list[Side], round_count: int) -> None:
    for number in range(1 - WARM_UP_PASSES, round_count + 1):
        kind = f"round {number} of {round_count}" if number > 0 else "warm-up"
        print(f"  both clusters in turns: {kind}", flush=True)
        for side in sides:
            produce, latency = _produce(side.cluster), one_message_at_a_time(side.cluster)
            if number > 0:
                side.produce.append(produce)
                side.latency.append(latency)
    for side in sides:
        side.rss_mb = side.cluster.rss_bytes() / 1e6


def _produce(cluster: BenchCluster) -> Measure:
    run = partial(produce_many, acks=ACKS_ALL, seconds_max=PRODUCE_S)
    with _topic(cluster, LOAD_PARTITIONS) as topic:
        measure = measured(cluster, lambda: in_child(run, cluster.bootstrap_servers, topic))
        stored = _stored(cluster, topic)
    if stored != measure.requests:
        raise BenchError(f"librdkafka delivered {measure.requests} messages, the logs have {stored}")
    return measure


def _stored(cluster: BenchCluster, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "bench", **LIBRARY})
    partitions = [TopicPartition(topic, number) for number in range(LOAD_PARTITIONS)]
    try:
        return sum(consumer.get_watermark_offsets(each, timeout=CLIENT_S_MAX)[1] for each in partitions)
    finally:
        consumer.close()


def one_message_at_a_time(cluster: BenchCluster) -> Latency:
    run = partial(produce_one_by_one, acks=ACKS_ALL, count=ROUND_TRIPS)
    with _topic(cluster, 1) as topic:
        neighbours = Neighbours()
        latency = percentiles(in_child(run, cluster.bootstrap_servers, topic))
        return replace(latency, disturbance=neighbours.share())


@contextlib.contextmanager
def _topic(cluster: BenchCluster, partitions: int) -> Iterator[str]:
    topic = next(_names)
    cluster.create_topic(topic, partitions)
    yield topic
    cluster.delete_topic(topic)


def _killed(scratch: Path, kind: Kind) -> tuple[float, float]:
    """A fresh cluster of this kind, of which one broker is killed under traffic."""
    print(f"  {kind.name}: a broker is killed", flush=True)
    with kind(scratch, f"{kind.name.lower()}-killed") as cluster:
        topic = next(_names)
        cluster.create_topic(topic, FAILOVER_PARTITIONS)
        led = [number for number, leader in cluster.leaders(topic).items() if leader == VICTIM]
        with Traffic(cluster.bootstrap_servers, topic, led) as traffic:
            time.sleep(LEAD_IN_S)
            cluster.kill(VICTIM)
            traffic.burst()
            waits = traffic.settle()
    return waits.produce_s, waits.consume_s


def _figures(ours: Side, theirs: Side) -> list[Figure]:
    produce = "librdkafka produce, 1 KB messages"
    one = "one message at a time"
    killed = f"after kill -9 of a broker, {FAILOVER_PARTITIONS} partitions"
    speed, cpu = "mb_per_s", "cpu_s_per_gb"
    rows = [
        ("throughput", produce, ours.produce.median(speed), theirs.produce.median(speed), "MB/s"),
        (
            "broker CPU",
            f"{produce}, all brokers",
            ours.produce.median(cpu),
            theirs.produce.median(cpu),
            "s/GB",
        ),
        *(
            ("latency", f"{one}, {label}", _ms(ours, attribute), _ms(theirs, attribute), "ms")
            for label, attribute in (("p50", "p50_us"), ("p99", "p99_us"))
        ),
        ("footprint", "memory of all brokers after it", ours.rss_mb, theirs.rss_mb, "MB"),
        ("footprint", "start to ready", ours.cluster.start_s, theirs.cluster.start_s, "s"),
        ("longest wait", f"producer, {killed}", ours.produce_wait_s, theirs.produce_wait_s, "s"),
        ("longest wait", f"consumer, {killed}", ours.consume_wait_s, theirs.consume_wait_s, "s"),
    ]
    return [_judged(*row) for row in rows]


def _judged(group: str, name: str, ours: float, theirs: float, unit: str) -> Figure:
    if group == "throughput":
        return compared(group, name, ours, theirs, unit, at_least=SPEED_AT_LEAST)
    at_most = WAIT_AT_MOST if group == "longest wait" else COST_AT_MOST
    return compared(group, name, ours, theirs, unit, at_most=at_most)


def _ms(side: Side, attribute: str) -> float:
    return median_of(side.latency, attribute) / 1000
