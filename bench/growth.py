"""Whether an append or a fetch costs more when the broker holds more.

Two brokers run side by side. One is empty but for the log under load; in the other that log has a hundred
segments, or a thousand partitions with data lie beside it. The same requests go to both in turns, so the
ratio of CPU per request is the effect of size alone.
"""

from __future__ import annotations

import random
from collections import defaultdict

from bench.client import Client
from bench.frames import B200_BATCH, KB16_BATCH, KB16_BATCH_RECORDS, fetch_stream, produce_stream
from bench.load import Measure, Rounds, run_load
from bench.report import Figure
from bench.rounds import ROUND_S
from bench.server import ForebayServer, Server
from bench.suite import Suite

SEGMENT_BYTES = 1 << 20
SEGMENTS = 100
PARTITIONS = 1000
APPEND_BYTES_MAX = 16 * SEGMENT_BYTES
GROWTH_MAX = 1.3
BATCHES_PER_SEGMENT = SEGMENT_BYTES // len(KB16_BATCH)
APPEND = "append 200 B"
FETCH = "fetch 16 KB after 16 KB"
"""As consumers read: where the last fetch ended."""
SEEK = "fetch 16 KB anywhere"
SMALL_SEGMENTS = {"segment.bytes": str(SEGMENT_BYTES)}


def growth_figures(suite: Suite) -> list[Figure]:
    figures: list[Figure] = []
    with ForebayServer(suite.scratch, "empty") as empty, ForebayServer(suite.scratch, "grown") as grown:
        _fill_segments(empty, "log", segments=1)
        _fill_segments(grown, "log", segments=SEGMENTS)
        figures += _compare(suite, f"{SEGMENTS} segments", empty, grown, "log", SEGMENTS)
        _fill_partitions(grown, "wide")
        _fill_segments(empty, "one", segments=1)
        _fill_segments(grown, "one", segments=1)
        figures += _compare(suite, f"{PARTITIONS:,} partitions", empty, grown, "one", 1)
    return figures


def _fill_segments(server: Server, topic: str, *, segments: int) -> None:
    with Client(server.address) as client:
        client.create_topic(topic, configs=SMALL_SEGMENTS)
        client.fill(topic, segments * BATCHES_PER_SEGMENT, KB16_BATCH)


def _fill_partitions(server: Server, topic: str) -> None:
    with Client(server.address) as client:
        client.create_topic(topic, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            client.fill(topic, 1, B200_BATCH, partition)


def _compare(
    suite: Suite, name: str, empty: Server, grown: Server, topic: str, segments: int
) -> list[Figure]:
    measured: dict[tuple[str, str], Rounds] = defaultdict(Rounds)
    for _ in suite.each_round(f"growth, {name}"):
        for size, server, span in (("empty", empty, 1), ("grown", grown, segments)):
            measured[APPEND, size].append(_append(server, topic))
            measured[FETCH, size].append(_fetch(server, topic, _offsets(span)))
            measured[SEEK, size].append(_fetch(server, topic, _shuffled(_offsets(span))))
    return [
        Figure(
            group=f"cost with {name}",
            name=f"{load}, broker CPU",
            value=measured[load, "grown"].median("cpu_us_per_request"),
            unit="µs/request",
            limit=measured[load, "empty"].median("cpu_us_per_request"),
            limit_name="empty broker",
            at_most=GROWTH_MAX if load != SEEK else None,
        )
        for load in (APPEND, FETCH, SEEK)
    ]


def _offsets(segments: int) -> list[int]:
    """Where every batch begins that `_fill_segments` has written."""
    return [n * KB16_BATCH_RECORDS for n in range(segments * BATCHES_PER_SEGMENT)]


def _shuffled(offsets: list[int]) -> list[int]:
    # A fixed seed: every round and every run asks in the same order.
    return random.Random(2).sample(offsets, k=len(offsets))


def _fetch(server: Server, topic: str, offsets: list[int]) -> Measure:
    return run_load(server, [fetch_stream(topic, offsets, KB16_BATCH, seconds=ROUND_S)])


def _append(server: Server, topic: str) -> Measure:
    stream = produce_stream(topic, B200_BATCH, seconds=ROUND_S, bytes_max=APPEND_BYTES_MAX)
    return run_load(server, [stream])
