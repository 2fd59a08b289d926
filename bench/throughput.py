"""Produce and fetch at full speed on one connection and on four, beside what the machine allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from bench import rounds
from bench.frames import B200_BATCH, KB16_BATCH, deep_produce_stream, produce_stream
from bench.load import Measure, Rounds, Stream, run_load
from bench.machine import median_of
from bench.raw import RawLimit, raw_fetch, raw_produce
from bench.report import Figure
from bench.rounds import ROUND_BYTES_MAX, ROUND_S
from bench.server import Server
from bench.suite import Suite

CONNECTIONS = (1, 4)
Load = Callable[[Server, int], Measure]
LOADS: dict[str, Load] = {
    "produce 1 MB": rounds.produce_mb,
    "fetch 1 MB": rounds.fetch_mb,
    "produce 16 KB": rounds.produce_16kb,
    "produce 200 B": rounds.produce_200b,
    "produce 200 B, deep": rounds.produce_200b_deep,
}

LARGE = (
    ("produce 1 MB", "receive-CRC-write", (0.6, 1.6)),
    ("fetch 1 MB", "sendfile", (0.7, 1.6)),
)
"""With the least share of the raw limit's throughput that is good enough, and the most of its CPU."""
SMALL = (
    ("produce 16 KB", "receive-CRC-write", 2.2),
    ("produce 200 B", "echo", 4.5),
    ("produce 200 B, deep", "echo", None),
)
"""With the most of the raw limit's CPU that is good enough. The limits do not parse, number or index."""


def throughput_figures(suite: Suite) -> list[Figure]:
    measured: dict[tuple[str, int], Rounds] = defaultdict(Rounds)
    bare: dict[tuple[str, int], Rounds] = defaultdict(Rounds)
    raw: dict[str, list[RawLimit]] = defaultdict(list)
    for _ in suite.each_round("throughput"):
        raw["produce 1 MB"].append(raw_produce(suite.scratch))
        raw["fetch 1 MB"].append(raw_fetch(suite.scratch))
        for connections in CONNECTIONS:
            for name, load in LOADS.items():
                measured[name, connections].append(load(suite.broker, connections))
            for name, measure in _bare_loads(suite, connections).items():
                bare[name, connections].append(measure)
    figures: list[Figure] = []
    for connections in CONNECTIONS:
        group = f"{connections} connection{'s' if connections > 1 else ''}"
        for name, limit_name, targets in LARGE:
            figures += _large(group, name, measured[name, connections], raw[name], limit_name, targets)
        for name, limit_name, at_most in SMALL:
            pair = measured[name, connections], bare[name, connections]
            figures += _small(group, name, *pair, limit_name, at_most)
    return figures


def _bare_loads(suite: Suite, connections: int) -> dict[str, Measure]:
    """The very same bytes to the bare loops, which do not ask what they mean."""

    def load(server: Server, make: Callable[..., Stream], batch: bytes) -> Measure:
        bytes_max = ROUND_BYTES_MAX // connections
        streams = [
            make("bench-000000", batch, partition=n, seconds=ROUND_S, bytes_max=bytes_max)
            for n in range(connections)
        ]
        return run_load(server, streams)

    return {
        "produce 16 KB": load(suite.crc_write, produce_stream, KB16_BATCH),
        "produce 200 B": load(suite.echo, produce_stream, B200_BATCH),
        "produce 200 B, deep": load(suite.echo, deep_produce_stream, B200_BATCH),
    }


def _large(
    group: str,
    name: str,
    measured: Rounds,
    raw: list[RawLimit],
    limit_name: str,
    targets: tuple[float, float],
) -> list[Figure]:
    at_least, at_most = targets
    return [
        Figure(
            group=group,
            name=name,
            value=measured.median("mb_per_s"),
            unit="MB/s",
            limit=median_of(raw, "mb_per_s"),
            limit_name=limit_name,
            at_least=at_least,
        ),
        Figure(
            group=group,
            name=f"{name}, broker CPU",
            value=measured.median("cpu_s_per_gb"),
            unit="s/GB",
            limit=median_of(raw, "cpu_s_per_gb"),
            limit_name=limit_name,
            at_most=at_most,
        ),
    ]


def _small(
    group: str, name: str, measured: Rounds, bare: Rounds, limit_name: str, at_most: float | None
) -> list[Figure]:
    return [
        Figure(
            group=group,
            name=name,
            value=measured.median("requests_per_s"),
            unit="requests/s",
            limit=bare.median("requests_per_s"),
            limit_name=limit_name,
        ),
        Figure(
            group=group,
            name=f"{name}, broker CPU",
            value=measured.median("cpu_us_per_request"),
            unit="µs/request",
            limit=bare.median("cpu_us_per_request"),
            limit_name=limit_name,
            at_most=at_most,
        ),
    ]
