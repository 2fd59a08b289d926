"""Load generators: separate processes that send prebuilt frames and count the bytes that come back.

A generator does no protocol work while it runs, so it has no session (`wire/session.py`). Its requests were
built before, and all replies have the size of the first, so that receiving is counting. That keeps it far
cheaper than the server. Whether the replies were successes is checked afterwards from the log's end offset
(`bench.client`).
"""

from __future__ import annotations

import gc
import multiprocessing
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Protocol, TypeAlias

from bench.machine import Neighbours, median_of
from bench.server import Address, BenchError, WayIn
from bench.tls_records import CountingSocket

RECEIVE_BUFFER_BYTES = 1 << 20
SOCKET_TIMEOUT_S = 20.0
Driven: TypeAlias = socket.socket | CountingSocket


class Served(Protocol):
    """Where load goes, and what it costs there: a server, or a cluster of them."""

    @property
    def way_in(self) -> WayIn: ...

    def cpu_s(self) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What one generator sends over its one connection."""

    blobs: Sequence[bytes]
    """Each some complete requests; sent in turn, over and over."""
    requests_per_blob: int = 1
    payload_bytes_per_blob: int
    """Bytes of record batches moved by one blob, in whichever direction."""
    window: int
    """How many blobs may be unanswered."""
    seconds: float = 1.0
    blobs_max: int = 1 << 40
    way_in: WayIn | None = None
    """To the broker that leads the partition, where that is not the only one."""
    decrypts: bool = True
    """False if it only counts what comes over TLS (`bench/tls_records.py`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One round of load and what the server spent on it."""

    requests: int
    payload_bytes: int
    seconds: float
    cpu_s: float
    client_cpu_s: float = 0.0
    """What the load generators took, if they are processes of ours."""
    disturbance: float = 0.0

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.payload_bytes / 1e6 / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        return self.cpu_s / (self.payload_bytes / 1e9)

    @property
    def cpu_us_per_request(self) -> float:
        return self.cpu_s * 1e6 / self.requests


class Rounds(list[Measure]):
    """The same load several times."""

    def median(self, figure: str) -> float:
        return median_of(self, figure)


def connect(address: Address) -> socket.socket:
    sock = socket.create_connection(address, timeout=SOCKET_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def enter(way_in: WayIn) -> socket.socket:
    sock = connect(way_in.address)
    if way_in.authority is None:
        return sock
    context = ssl.create_default_context(cafile=way_in.authority)
    return context.wrap_socket(sock, server_hostname=way_in.address[0])


def receive_exactly(sock: socket.socket, view: memoryview) -> None:
    while len(view):
        count = sock.recv_into(view)
        if not count:
            raise BenchError("the server closed the connection")
        view = view[count:]


def receive_frame(sock: socket.socket) -> memoryview:
    """One reply with its length."""
    head = bytearray(4)
    receive_exactly(sock, memoryview(head))
    frame = bytearray(4 + struct.unpack(">i", head)[0])
    frame[:4] = head
    receive_exactly(sock, memoryview(frame)[4:])
    return memoryview(frame)


def run_load(server: Served, streams: Sequence[Stream]) -> Measure:
    """Drives all streams at once, each from its own process, and adds up what they did."""
    neighbours = Neighbours()
    context = multiprocessing.get_context("fork")
    pairs = [context.Pipe() for _ in streams]
    children = [
        context.Process(target=_child, args=(stream.way_in or server.way_in, stream, theirs), daemon=True)
        for stream, (_, theirs) in zip(streams, pairs, strict=True)
    ]
    for child in children:
        child.start()
    try:
        measure = _conduct(server, streams, [ours for ours, _ in pairs])
    finally:
        for child in children:
            child.join(SOCKET_TIMEOUT_S)
            if child.is_alive():
                child.kill()
    return replace(measure, disturbance=neighbours.share())


def _conduct(server: Served, streams: Sequence[Stream], pipes: Sequence[Connection]) -> Measure:
    for pipe in pipes:
        _outcome(pipe)
    cpu_s = server.cpu_s()
    for pipe in pipes:
        pipe.send("go")
    outcomes = [_outcome(pipe) for pipe in pipes]
    cpu_s = server.cpu_s() - cpu_s
    blobs = [int(outcome[0]) for outcome in outcomes]
    return Measure(
        requests=sum(n * stream.requests_per_blob for n, stream in zip(blobs, streams, strict=True)),
        payload_bytes=sum(
            n * stream.payload_bytes_per_blob for n, stream in zip(blobs, streams, strict=True)
        ),
        seconds=max(outcome[2] for outcome in outcomes) - min(outcome[1] for outcome in outcomes),
        cpu_s=cpu_s,
        client_cpu_s=sum(outcome[3] for outcome in outcomes),
    )


def _outcome(pipe: Connection) -> tuple[float, float, float, float]:
    if not pipe.poll(60):
        raise BenchError("a load generator does not answer")
    outcome = pipe.recv()
    if isinstance(outcome, str):
        raise BenchError(f"a load generator failed: {outcome}")
    assert isinstance(outcome, tuple)
    return outcome


def _child(way_in: WayIn, stream: Stream, pipe: Connection) -> None:
    gc.disable()
    try:
        with enter(way_in) as sock:
            reply_bytes = _probe(sock, stream)
            pipe.send((0, 0, 0, 0))
            pipe.recv()
            with _receiving(sock, stream) as driven:
                cpu_s = time.process_time()
                outcome = _drive(driven, stream, reply_bytes)
                pipe.send((*outcome, time.process_time() - cpu_s))
    except (OSError, BenchError, EOFError) as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _probe(sock: socket.socket, stream: Stream) -> int:
    """Sends the first blob and learns how many bytes answer it."""
    sock.sendall(stream.blobs[0])
    return sum(len(receive_frame(sock)) for _ in range(stream.requests_per_blob))


@contextmanager
def _receiving(sock: socket.socket, stream: Stream) -> Iterator[Driven]:
    if stream.decrypts or not isinstance(sock, ssl.SSLSocket):
        yield sock
    else:
        with closing(CountingSocket(sock)) as counting:
            yield counting


def _drive(sock: Driven, stream: Stream, reply_bytes: int) -> tuple[int, float, float]:
    blobs, kinds = stream.blobs, len(stream.blobs)
    buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    sent, received, slack = 0, 0, (stream.window - 1) * reply_bytes
    started = time.perf_counter()
    deadline = started + stream.seconds
    while sent < stream.blobs_max and time.perf_counter() < deadline:
        sock.sendall(blobs[sent % kinds])
        sent += 1
        received = _receive_until(sock, buffer, received, sent * reply_bytes - slack)
    received = _receive_until(sock, buffer, received, sent * reply_bytes)
    if received != sent * reply_bytes:
        raise BenchError(
            f"{received} bytes came back, not {sent * reply_bytes}: some reply is not like the first"
        )
    return sent, started, time.perf_counter()


def _receive_until(sock: Driven, buffer: memoryview, received: int, wanted: int) -> int:
    while received < wanted:
        count = sock.recv_into(buffer)
        if not count:
            raise BenchError("the server closed the connection")
        received += count
    return received
