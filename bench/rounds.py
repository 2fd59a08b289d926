"""One round of each load against a broker: a fresh topic, the load, the proof that it arrived, no topic left.

Fresh topics keep the disk bounded and every round alike. The same functions drive Forebay and Apache Kafka.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from bench.client import Client
from bench.frames import (
    B200_BATCH,
    KB16_BATCH,
    KB16_BATCH_RECORDS,
    KB64_BATCH,
    KB64_BATCH_RECORDS,
    MB_BATCH,
    MB_BATCH_RECORDS,
    deep_produce_stream,
    fetch_stream,
    produce_stream,
)
from bench.load import Measure, Served, Stream, run_load
from bench.server import Address, BenchError

ROUND_S = 0.7
ROUND_BYTES_MAX = 1_200_000_000
FETCH_LOG_BATCHES = 128
_numbers = itertools.count(1)


class Broker(Served, Protocol):
    """What rounds need of a server besides: it makes topics, by a listener without TLS."""

    @property
    def address(self) -> Address: ...

    def discard_deleted(self) -> None: ...


@contextmanager
def fresh_topic(server: Broker, partitions: int = 1) -> Iterator[tuple[Client, str]]:
    name = f"bench-{next(_numbers):06}"
    with Client(server.address) as client:
        client.create_topic(name, partitions=partitions)
        yield client, name
        client.delete_topic(name)
    server.discard_deleted()


def produce_mb(server: Broker, connections: int) -> Measure:
    return _produce(server, connections, produce_stream, MB_BATCH, MB_BATCH_RECORDS)


def produce_64kb(server: Broker, connections: int) -> Measure:
    return _produce(server, connections, produce_stream, KB64_BATCH, KB64_BATCH_RECORDS)


def produce_16kb(server: Broker, connections: int) -> Measure:
    return _produce(server, connections, produce_stream, KB16_BATCH, KB16_BATCH_RECORDS)


def produce_200b(server: Broker, connections: int) -> Measure:
    return _produce(server, connections, produce_stream, B200_BATCH, 1)


def produce_200b_deep(server: Broker, connections: int) -> Measure:
    return _produce(server, connections, deep_produce_stream, B200_BATCH, 1)


def _produce(
    server: Broker, connections: int, make: Callable[..., Stream], batch: bytes, batch_records: int
) -> Measure:
    """Each connection writes to its own partition; the end offsets must then tell the same count."""
    bytes_max = ROUND_BYTES_MAX // connections
    with fresh_topic(server, connections) as (client, topic):
        streams = [
            make(topic, batch, partition=n, seconds=ROUND_S, bytes_max=bytes_max) for n in range(connections)
        ]
        measure = run_load(server, streams)
        probes = sum(stream.requests_per_blob for stream in streams)
        stored = sum(client.end_offset(topic, n) or 0 for n in range(connections))
        if stored != (measure.requests + probes) * batch_records:
            raise BenchError(
                f"{stored} records are stored of {measure.requests + probes} acknowledged batches"
            )
    return measure


def fetch_mb(server: Broker, connections: int) -> Measure:
    """Every connection reads the same log, each from another place in it."""
    offsets = [n * MB_BATCH_RECORDS for n in range(FETCH_LOG_BATCHES)]
    with fresh_topic(server) as (client, topic):
        client.fill(topic, FETCH_LOG_BATCHES)
        shift = FETCH_LOG_BATCHES // connections
        streams = [
            fetch_stream(topic, offsets[n * shift :] + offsets[: n * shift], MB_BATCH, seconds=ROUND_S)
            for n in range(connections)
        ]
        return run_load(server, streams)


def warm_page_cache(scratch: Path, total_bytes: int = 3 * ROUND_BYTES_MAX) -> None:
    """Touches as much page cache as the rounds will use: in a virtual machine the first touch is slow."""
    chunk = bytes(1 << 20)
    path = scratch / "warm-up"
    with path.open("wb", buffering=0) as file:
        for _ in range(total_bytes // len(chunk)):
            file.write(chunk)
    path.unlink()
