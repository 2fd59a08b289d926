"""How long one client waits at an idle broker, alone and with thousands of silent connections beside it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.client import Client
from bench.frames import B200_BATCH, frame_bytes, produce_frame
from bench.latency import Latency, produce_round_trips, round_trips, wakes
from bench.load import connect, receive_frame
from bench.machine import median_of
from bench.report import Figure
from bench.rounds import fresh_topic
from bench.server import ForebayServer, Server
from bench.suite import Suite
from forebay.wire.messages.api_versions import ApiVersionsRequest

ROUND_TRIPS = 5000
WAKES = 1000
IDLE_CONNECTIONS = 5000
IDLE_BYTES_MAX = 8 * 1024
IDLE_EFFECT_MAX = 1.2
"""More than the spread between two runs of the same thing, less than any real effect of 5,000 connections."""


def latency_figures(suite: Suite) -> list[Figure]:
    echo: list[Latency] = []
    produce: list[Latency] = []
    wake: list[Latency] = []
    with fresh_topic(suite.broker) as (_, topic):
        for _ in suite.each_round("latency"):
            echo.append(round_trips(suite.echo.address, produce_frame(topic, B200_BATCH), ROUND_TRIPS))
            produce.append(produce_round_trips(suite.broker.address, topic, ROUND_TRIPS))
            wake.append(wakes(suite.broker.address, topic, WAKES))
    return [
        *_percentile_figures("produce round trip, acks=1", produce, echo, at_most=4.0),
        *_percentile_figures("produce to long-poll wake", wake, echo, at_most=8.0),
    ]


def _percentile_figures(
    name: str, measured: list[Latency], echo: list[Latency], *, at_most: float
) -> list[Figure]:
    return [
        Figure(
            group="latency when idle",
            name=f"{name}, {label}",
            value=median_of(measured, attribute),
            unit="µs",
            limit=median_of(echo, attribute),
            limit_name="echo",
            at_most=at_most if attribute == "p50_us" else None,
        )
        for label, attribute in (("p50", "p50_us"), ("p99", "p99_us"), ("p99.9", "p999_us"))
    ]


def idle_connection_figures(suite: Suite) -> list[Figure]:
    """Memory per silent connection, and the round trip with and without them in turns.

    The broker is a fresh one: memory that an earlier load has left free would hide what connections take.
    """
    quiet: list[Latency] = []
    crowded: list[Latency] = []
    grown_bytes: list[int] = []
    with ForebayServer(suite.scratch, "idle") as broker, fresh_topic(broker) as (_, topic):
        for _ in suite.each_round("idle connections"):
            quiet.append(produce_round_trips(broker.address, topic, ROUND_TRIPS))
            rss_bytes = broker.rss_bytes()
            with idle_connections(broker, IDLE_CONNECTIONS):
                grown_bytes.append(broker.rss_bytes() - rss_bytes)
                crowded.append(produce_round_trips(broker.address, topic, ROUND_TRIPS))
    group = f"{IDLE_CONNECTIONS:,} idle connections"
    return [
        Figure(
            group=group,
            name="memory each",
            # Later rounds reuse what the first one made the broker allocate.
            value=max(grown_bytes) / IDLE_CONNECTIONS,
            unit="bytes",
            at_most=IDLE_BYTES_MAX,
            judged="value",
        ),
        Figure(
            group=group,
            name="produce round trip, acks=1, p50",
            value=median_of(crowded, "p50_us"),
            unit="µs",
            limit=median_of(quiet, "p50_us"),
            limit_name="without them",
            at_most=IDLE_EFFECT_MAX,
        ),
    ]


@contextmanager
def idle_connections(server: Server, count: int) -> Iterator[None]:
    """Clients that said hello, as real ones do, and then nothing more."""
    hello = frame_bytes(ApiVersionsRequest(), 0)
    with ExitStack() as sockets:
        opened = [_said_hello(sockets.enter_context(connect(server.address)), hello) for _ in range(count)]
        for sock in opened:
            receive_frame(sock)
        yield
    # The broker sees the ends of all of them before it answers this.
    with Client(server.address) as client:
        client.end_offset("bench-000000")


def _said_hello(sock: socket.socket, hello: bytes) -> socket.socket:
    sock.sendall(hello)
    return sock
