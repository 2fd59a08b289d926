"""Round trips one at a time on an otherwise idle server."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bench.client import Client
from bench.frames import B200_BATCH, fetch_frame, frame_bytes, produce_frame
from bench.load import connect, receive_frame
from bench.machine import Neighbours
from bench.server import Address, BenchError
from forebay.wire.messages.api_versions import ApiVersionsRequest

WARM_UP = 300
PING = frame_bytes(ApiVersionsRequest(), 0)
WAKE_WAIT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    p50_us: float
    p99_us: float
    p999_us: float
    disturbance: float = 0.0


def percentiles(nanoseconds: list[int]) -> Latency:
    ordered = sorted(nanoseconds)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000

    return Latency(p50_us=at(0.5), p99_us=at(0.99), p999_us=at(0.999))


def round_trips(address: Address, frame: bytes, count: int) -> Latency:
    """From the first byte sent to the last byte of the reply, one request at a time."""
    with connect(address) as sock:
        for _ in range(WARM_UP):
            sock.sendall(frame)
            reply_bytes = len(receive_frame(sock))
        return sampled(lambda: _round_trip_ns(sock, frame, reply_bytes), count)


def _round_trip_ns(sock: socket.socket, frame: bytes, reply_bytes: int) -> int:
    started = time.perf_counter_ns()
    sock.send(frame)
    received = len(sock.recv(65536))
    while received < reply_bytes:
        received += len(sock.recv(65536))
    return time.perf_counter_ns() - started


def produce_round_trips(address: Address, topic: str, count: int) -> Latency:
    with Client(address) as client:
        before = client.end_offset(topic) or 0
        latency = round_trips(address, produce_frame(topic, B200_BATCH), count)
        stored = (client.end_offset(topic) or 0) - before
    if stored != count + WARM_UP:
        raise BenchError(f"{stored} records stored of {count + WARM_UP} acknowledged")
    return latency


def wakes(address: Address, topic: str, count: int) -> Latency:
    """From sending a produce on one connection to the records' arrival at a long poll on another."""
    with Client(address) as client:
        offset = client.end_offset(topic)
    if offset is None:
        raise BenchError(f"topic {topic} cannot be read")
    with connect(address) as producer, connect(address) as consumer:
        offsets = iter(range(offset, offset + count + WARM_UP))
        frame = produce_frame(topic, B200_BATCH)
        for _ in range(WARM_UP):
            _wake_ns(producer, consumer, topic, frame, next(offsets))
        return sampled(lambda: _wake_ns(producer, consumer, topic, frame, next(offsets)), count)


def _wake_ns(producer: socket.socket, consumer: socket.socket, topic: str, frame: bytes, offset: int) -> int:
    consumer.sendall(fetch_frame(topic, offset, max_bytes=1 << 20, max_wait_ms=WAKE_WAIT_MS))
    # Once something sent later is answered, the fetch is parked; a pause would let the cores doze off.
    producer.sendall(PING)
    receive_frame(producer)
    started = time.perf_counter_ns()
    producer.sendall(frame)
    reply = receive_frame(consumer)
    elapsed = time.perf_counter_ns() - started
    receive_frame(producer)
    if len(reply) < len(B200_BATCH):
        raise BenchError("a long poll was answered without the record it waited for")
    return elapsed


def sampled(sample: Callable[[], int], count: int) -> Latency:
    neighbours = Neighbours()
    with _no_garbage_collection():
        latency = percentiles([sample() for _ in range(count)])
    return replace(latency, disturbance=neighbours.share())


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
