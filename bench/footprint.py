"""What the broker takes: time to start, and memory at rest, at full speed and among stalled consumers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.client import Client
from bench.frames import MB_BATCH, MB_BATCH_RECORDS, fetch_frame, fetch_stream, produce_stream
from bench.load import connect, run_load
from bench.report import Figure
from bench.rounds import FETCH_LOG_BATCHES, ROUND_BYTES_MAX, fresh_topic
from bench.server import ForebayServer, Server, bare_server
from bench.suite import Suite

STALLED_CONSUMERS = 50
STALLED_FETCH_BYTES = 50 << 20
"""What a consumer asks for by default: 50 of them could hold 2.5 GB if the broker kept it in memory."""
FULL_SPEED_S = 1.5


def start_figures(suite: Suite) -> list[Figure]:
    start_s: list[float] = []
    rss_mb: list[float] = []
    bare_start_s: list[float] = []
    bare_rss_mb: list[float] = []
    for number in suite.each_round("start"):
        with bare_server("echo", suite.scratch) as bare:
            bare_start_s.append(bare.start_s)
            bare_rss_mb.append(bare.rss_bytes() / 1e6)
        with ForebayServer(suite.scratch, f"start-{number}") as broker:
            start_s.append(broker.start_s)
            rss_mb.append(broker.rss_bytes() / 1e6)
    median = statistics.median
    return [
        _value_figure("start to ready", median(start_s), "s", median(bare_start_s), 0.5),
        _value_figure("memory at start", median(rss_mb), "MB", median(bare_rss_mb), 60.0),
    ]


def memory_figures(suite: Suite) -> list[Figure]:
    """The most memory a fresh broker ever has at full speed, first alone, then with stalled consumers."""
    bare_mb = suite.echo.rss_bytes() / 1e6
    with ForebayServer(suite.scratch, "memory") as broker:
        print("  memory: full speed", flush=True)
        full_speed(broker)
        busy_mb = broker.rss_bytes_max() / 1e6
        print("  memory: full speed with stalled consumers", flush=True)
        with fresh_topic(broker) as (client, topic), stalled_consumers(broker, client, topic):
            full_speed(broker)
            stalled_mb = broker.rss_bytes_max() / 1e6
    return [
        _value_figure("memory at full speed", busy_mb, "MB", bare_mb, 100.0),
        _value_figure(
            f"memory with {STALLED_CONSUMERS} stalled consumers too", stalled_mb, "MB", bare_mb, 100.0
        ),
    ]


def _value_figure(name: str, value: float, unit: str, limit: float, at_most: float) -> Figure:
    return Figure(
        group="footprint",
        name=name,
        value=value,
        unit=unit,
        limit=limit,
        limit_name="echo",
        at_most=at_most,
        judged="value",
    )


def full_speed(broker: Server) -> None:
    """One producer and one consumer, each as fast as it can."""
    offsets = [n * MB_BATCH_RECORDS for n in range(FETCH_LOG_BATCHES)]
    with fresh_topic(broker) as (_, written), fresh_topic(broker) as (client, read):
        client.fill(read, FETCH_LOG_BATCHES)
        produce = produce_stream(written, MB_BATCH, seconds=FULL_SPEED_S, bytes_max=2 * ROUND_BYTES_MAX)
        run_load(broker, [produce, fetch_stream(read, offsets, MB_BATCH, seconds=FULL_SPEED_S)])


@contextmanager
def stalled_consumers(broker: Server, client: Client, topic: str) -> Iterator[None]:
    """Each asks for all there is, and never reads the answer."""
    client.fill(topic, STALLED_FETCH_BYTES // len(MB_BATCH))
    frame = fetch_frame(topic, 0, max_bytes=STALLED_FETCH_BYTES)
    with ExitStack() as sockets:
        for _ in range(STALLED_CONSUMERS):
            sockets.enter_context(connect(broker.address)).sendall(frame)
        yield
