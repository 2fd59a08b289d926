"""Forebay beside Apache Kafka: the same loads to both in turns, in one run on one machine.

Both brokers run throughout and rest while the other works. Unmeasured passes of every load come first, so
that the JVM has compiled what it will run.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from bench import rounds
from bench.client import Client
from bench.clients import CONSUME_BATCHES, librdkafka_consume, librdkafka_produce
from bench.kafka_server import KafkaServer, KafkaWithTls, kafka_version
from bench.latency import Latency, produce_round_trips, wakes
from bench.load import Measure, Rounds
from bench.machine import median_of
from bench.report import Figure
from bench.rounds import fresh_topic, warm_page_cache
from bench.server import ForebayServer, Server
from bench.suite import scratch_directory
from bench.tls import ForebayWithTls

FOREBAY, KAFKA = "Forebay", "Kafka"
CONSUMED = "bench-consumed"
STARTS = 3
WARM_UP_PASSES = 2
ROUND_TRIPS = 5000
WAKES = 500

Measured: TypeAlias = ForebayWithTls | KafkaWithTls

LOADS: dict[str, Callable[[Measured], Measure]] = {
    "librdkafka produce, 1 KB messages": librdkafka_produce,
    "librdkafka consume, 1 KB messages": partial(librdkafka_consume, topic=CONSUMED),
    "produce 1 MB, 1 connection": partial(rounds.produce_mb, connections=1),
    "fetch 1 MB, 1 connection": partial(rounds.fetch_mb, connections=1),
    "produce 1 MB over TLS, 1 connection": lambda server: rounds.produce_mb(server.over_tls, 1),
    "fetch 1 MB over TLS, 1 connection": lambda server: rounds.fetch_mb(server.over_tls, 1),
    "produce 16 KB, 4 connections": partial(rounds.produce_16kb, connections=4),
    "produce 200 B, 4 connections": partial(rounds.produce_200b, connections=4),
    "produce 200 B, 4 connections, deep": partial(rounds.produce_200b_deep, connections=4),
}
GROUPS = ("throughput", "broker CPU", "latency")
SMALL_LOADS = ("produce 16 KB", "produce 200 B")
SPEED_AT_LEAST = 1.0
CPU_AT_MOST = 0.75
REQUESTS_AT_LEAST = {"produce 16 KB, 4 connections": 1.5, "produce 200 B, 4 connections, deep": 4.0}
"""Sent one by one, requests of 200 B cost the generators as much as the broker: only deep ones fill it."""


@dataclass(slots=True)
class Side:
    """One of the two brokers and all that was measured of it."""

    server: Measured
    start_s: float
    start_rss_mb: float
    loads: dict[str, Rounds] = field(default_factory=lambda: defaultdict(Rounds))
    produce: list[Latency] = field(default_factory=list)
    wake: list[Latency] = field(default_factory=list)
    rss_mb: float = 0.0


def versus_figures(round_count: int) -> tuple[list[Figure], str]:
    with scratch_directory() as scratch:
        print("warming up the page cache", flush=True)
        warm_page_cache(scratch)
        starts = {name: _starts(scratch, name) for name in (FOREBAY, KAFKA)}
        with ForebayWithTls(scratch, "forebay-0") as ours, KafkaWithTls(scratch, "kafka-0") as theirs:
            sides = [Side(ours, *starts[FOREBAY]), Side(theirs, *starts[KAFKA])]
            _run(sides, round_count)
    return _figures(*sides), kafka_version()


def _plain_server(scratch: Path, name: str, directory: str) -> Server:
    return KafkaServer(scratch, directory) if name == KAFKA else ForebayServer(scratch, directory)


def _starts(scratch: Path, name: str) -> tuple[float, float]:
    """Median seconds from the command to the first answer and memory then, with an empty data directory."""
    seconds: list[float] = []
    rss_mb: list[float] = []
    for number in range(1, STARTS + 1):
        print(f"  {name}: start {number} of {STARTS}", flush=True)
        directory = f"{name.lower()}-{number}"
        with _plain_server(scratch, name, directory) as server:
            seconds.append(server.start_s)
            rss_mb.append(server.rss_bytes() / 1e6)
    return statistics.median(seconds), statistics.median(rss_mb)


def _run(sides: list[Side], round_count: int) -> None:
    for side in sides:
        with Client(side.server.address) as client:
            client.create_topic(CONSUMED)
            client.fill(CONSUMED, CONSUME_BATCHES)
    for number in range(1 - WARM_UP_PASSES, round_count + 1):
        kind = f"round {number} of {round_count}" if number > 0 else "warm-up"
        print(f"  both brokers in turns: {kind}", flush=True)
        for name, load in LOADS.items():
            for side in sides:
                measure = load(side.server)
                if number > 0:
                    side.loads[name].append(measure)
        for side in sides:
            _measure_latency(side, keep=number > 0)
    for side in sides:
        side.rss_mb = side.server.rss_bytes() / 1e6


def _measure_latency(side: Side, *, keep: bool) -> None:
    with fresh_topic(side.server) as (_, topic):
        produce = produce_round_trips(side.server.address, topic, ROUND_TRIPS)
        wake = wakes(side.server.address, topic, WAKES)
    if keep:
        side.produce.append(produce)
        side.wake.append(wake)


def _figures(ours: Side, theirs: Side) -> list[Figure]:
    figures: list[Figure] = []
    for name in LOADS:
        small = name.startswith(SMALL_LOADS)
        figures += (_small if small else _large)(name, ours.loads[name], theirs.loads[name])
    for name, measured, kafka, targets in (
        ("produce round trip, acks=1", ours.produce, theirs.produce, (1.1, 1.1)),
        ("produce to long-poll wake", ours.wake, theirs.wake, (1.1, 1.1)),
    ):
        figures += _latency(name, measured, kafka, targets)
    return [
        *sorted(figures, key=lambda figure: GROUPS.index(figure.group)),
        compared("footprint", "memory at start", ours.start_rss_mb, theirs.start_rss_mb, "MB", at_most=1 / 8),
        compared("footprint", "memory after all of this", ours.rss_mb, theirs.rss_mb, "MB", at_most=1 / 8),
        compared("footprint", "start to ready", ours.start_s, theirs.start_s, "s", at_most=1 / 4),
    ]


def compared(
    group: str,
    name: str,
    ours: float,
    theirs: float,
    unit: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
) -> Figure:
    return Figure(
        group=group,
        name=name,
        value=ours,
        unit=unit,
        limit=theirs,
        limit_name="Kafka",
        at_least=at_least,
        at_most=at_most,
    )


def _large(name: str, ours: Rounds, theirs: Rounds) -> list[Figure]:
    speed, cpu = "mb_per_s", "cpu_s_per_gb"
    return [
        compared(
            "throughput", name, ours.median(speed), theirs.median(speed), "MB/s", at_least=SPEED_AT_LEAST
        ),
        compared("broker CPU", name, ours.median(cpu), theirs.median(cpu), "s/GB", at_most=CPU_AT_MOST),
    ]


def _small(name: str, ours: Rounds, theirs: Rounds) -> list[Figure]:
    speed, cpu = "requests_per_s", "cpu_us_per_request"
    factor = REQUESTS_AT_LEAST.get(name)
    return [
        compared("throughput", name, ours.median(speed), theirs.median(speed), "requests/s", at_least=factor),
        compared("broker CPU", name, ours.median(cpu), theirs.median(cpu), "µs/request", at_most=CPU_AT_MOST),
    ]


def _latency(
    name: str, ours: list[Latency], theirs: list[Latency], targets: tuple[float | None, float | None]
) -> list[Figure]:
    figures = []
    for label, attribute, at_most in (("p50", "p50_us", targets[0]), ("p99", "p99_us", targets[1])):
        pair = median_of(ours, attribute), median_of(theirs, attribute)
        figures.append(compared("latency", f"{name}, {label}", *pair, "µs", at_most=at_most))
    return figures
