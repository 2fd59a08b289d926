"""The old part of a topic, which is in an object store only: read by Spark itself, and through one broker.

The store is a directory on the same disk. Both read the same rows, in turns, with the options that Spark's
source has by default: a partition is one task through a broker, and segments of 128 MB are one directly. With
two partitions both have tasks enough for two cores. The broker's cache of old messages is smaller than what
is read, so that each round through it comes from the store.
"""

from __future__ import annotations

import json
import statistics
import time
from itertools import product
from pathlib import Path

from pyspark.sql import SparkSession

from bench.client import Client
from bench.report import Figure
from bench.server import BenchError, ForebayServer
from bench.spark.loads import Bench, timed, write
from forebay.spark.source.offset_lookup import offsets_at
from forebay.spark.source.offset_ranges import EARLIEST_LOCAL, TopicPartition
from forebay.spark.wire.connections import Cluster

GROUP = "old rows that are in an object store"
TOPIC = "history"
PARTITIONS = (1, 2)
DIRECT, THROUGH = "auto", "never"
"""As values of readRemote."""
RATIO_MIN = 1.5
DIRECT_BROKER_S_PER_GB_MAX = 0.1
SEGMENT_BYTES = 16 << 20
CACHE_BYTES = 32 << 20
COPIED_S_MAX = 120.0
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}


def history_figures(
    spark: SparkSession, scratch: Path, sizes: dict[int, str], rows: dict[int, int], rounds: int
) -> list[Figure]:
    """`sizes`: of the values, with their names. `rows`: how many of each size are written."""
    store = scratch / "store"
    store.mkdir()
    settings = (f"forebay.remote.url={store.as_uri()}", f"forebay.remote.cache.bytes={CACHE_BYTES}")
    with ForebayServer(scratch, "history", *settings) as broker:
        broker.wait_until_loaded()
        bench = Bench(spark, broker.address, scratch, rows)
        return [
            figure
            for partitions, (size, name) in product(PARTITIONS, sizes.items())
            for figure in _sized(bench, broker, partitions, size, name, rounds)
        ]


def _sized(
    bench: Bench, broker: ForebayServer, partitions: int, size: int, name: str, rounds: int
) -> list[Figure]:
    topic = f"{TOPIC}-{partitions}-{size}"
    name = f"{name}, {partitions} partition{'s' if partitions > 1 else ''}"
    with Client(bench.address) as client:
        client.create_topic(topic, partitions=partitions, configs=TIERED)
    print(f"  filling a topic with {bench.rows[size]:,} rows of {name}, and waiting for its copy", flush=True)
    write(bench, "forebay", topic, size, bench.rows[size])
    ends = _old_ends(bench, topic, partitions)
    count = sum(ends.values())
    seconds: dict[str, list[float]] = {DIRECT: [], THROUGH: []}
    cpu_s: dict[str, list[float]] = {DIRECT: [], THROUGH: []}
    for number in range(rounds + 1):  # the first lets the JVM compile, and is not counted
        for mode in (DIRECT, THROUGH) if number % 2 else (THROUGH, DIRECT):
            print(f"  {name}: old rows, readRemote={mode}, round {number} of {rounds}", flush=True)
            before = broker.cpu_s()
            took_s = _read(bench, topic, ends, mode)
            if number:
                seconds[mode].append(took_s)
                cpu_s[mode].append(broker.cpu_s() - before)
    rate = {mode: count / statistics.median(took) / 1000 for mode, took in seconds.items()}
    gb = count * size / 1e9
    cost = {mode: statistics.median(used) / gb for mode, used in cpu_s.items()}
    return [
        Figure(
            group=GROUP,
            name=f"{name}: directly",
            value=rate[DIRECT],
            unit="thousand rows/s",
            limit=rate[THROUGH],
            limit_name="through one broker",
            at_least=RATIO_MIN if partitions == 1 else None,
        ),
        Figure(
            group=GROUP,
            name=f"{name}: the broker's CPU",
            value=cost[DIRECT],
            unit="s/GB",
            limit=cost[THROUGH],
            limit_name="through one broker",
            at_most=DIRECT_BROKER_S_PER_GB_MAX,
            judged="value",
        ),
    ]


def _old_ends(bench: Bench, topic: str, partitions: int) -> dict[int, int]:
    """Where the local log of each partition begins, once no more of it is leaving the broker's disk."""
    deadline = time.monotonic() + COPIED_S_MAX
    with Cluster(bench.bootstrap) as cluster:
        wanted = {TopicPartition(topic, number): EARLIEST_LOCAL for number in range(partitions)}
        while any(_closed_bytes(bench, at) for at in wanted):
            if time.monotonic() > deadline:
                raise BenchError("what was copied is not deleted from the local disk")
            time.sleep(0.2)
        return {at.partition: offset for at, offset in offsets_at(cluster, wanted).items()}


def _closed_bytes(bench: Bench, at: TopicPartition) -> int:
    """The bytes of all segments but the last, which is open."""
    directory = bench.scratch / "history" / f"{at.topic}-{at.partition}"
    return sum(path.stat().st_size for path in sorted(directory.glob("*.log"))[:-1])


def _read(bench: Bench, topic: str, ends: dict[int, int], mode: str) -> float:
    """Seconds for all old rows."""
    options = {
        "kafka.bootstrap.servers": bench.bootstrap,
        "subscribe": topic,
        "endingOffsets": json.dumps({topic: ends}),
        "readRemote": mode,
    }
    rows = bench.spark.read.format("forebay").options(**options).load()
    return timed(lambda: rows.write.format("noop").mode("overwrite").save())
