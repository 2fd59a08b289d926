"""What this machine can do at all with 1 MB at a time over loopback TCP, between two processes.

    produce   one process sends; the other receives 1 MB, takes its CRC-32C and writes it to a file
    fetch     one process sends 1 MB from a file in the page cache with sendfile; the other receives it

Neither understands a word of a protocol, so a broker does more. They are simple programs: what is faster
moves the same bytes better.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fastcrc import crc32

from bench.machine import Neighbours

LOT_BYTES = 1 << 20
SETTLE_LOTS = 64
FILE_LOTS_MAX = 1024
"""The file of a receiver starts over after so much, so that the disk stays bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLimit:
    mb_per_s: float
    cpu_s_per_gb: float
    """Of the side that stands for the broker."""
    disturbance: float


def raw_produce(scratch: Path, seconds: float = 0.7) -> RawLimit:
    """The side that receives, checks and writes is this process."""
    with tempfile.TemporaryFile(dir=scratch, buffering=0) as file:
        buffer = memoryview(bytearray(LOT_BYTES))
        written = 0

        def store() -> None:
            nonlocal written
            crc32.iscsi(buffer)
            if written == FILE_LOTS_MAX:
                written = 0
                os.ftruncate(file.fileno(), 0)
                os.lseek(file.fileno(), 0, os.SEEK_SET)
            os.write(file.fileno(), buffer)
            written += 1

        return _measure(_send_bytes, buffer, store, seconds, broker_sends=False)


def raw_fetch(scratch: Path, seconds: float = 0.7) -> RawLimit:
    """The side that sends is the child process."""
    with tempfile.NamedTemporaryFile(dir=scratch) as file:
        file.truncate(0)
        for _ in range(SETTLE_LOTS):
            file.write(bytes(LOT_BYTES))
        file.flush()
        path = file.name
        buffer = memoryview(bytearray(LOT_BYTES))
        return _measure(lambda sock: _send_file(sock, path), buffer, None, seconds, broker_sends=True)


def _measure(
    send: Callable[[socket.socket], None],
    buffer: memoryview,
    store: Callable[[], None] | None,
    seconds: float,
    *,
    broker_sends: bool,
) -> RawLimit:
    neighbours = Neighbours()
    who = resource.RUSAGE_CHILDREN if broker_sends else resource.RUSAGE_SELF
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = multiprocessing.get_context("fork")
        sender = context.Process(target=_child, args=(listener.getsockname(), send), daemon=True)
        sender.start()
        sock, _ = listener.accept()
    cpu_s = _cpu_s(who)
    with sock:
        settled_bytes, _ = _receive(sock, buffer, store, SETTLE_LOTS * LOT_BYTES, 60.0)
        received_bytes, elapsed_s = _receive(sock, buffer, store, 1 << 60, seconds)
    sender.join()
    return RawLimit(
        mb_per_s=received_bytes / 1e6 / elapsed_s,
        cpu_s_per_gb=(_cpu_s(who) - cpu_s) / ((settled_bytes + received_bytes) / 1e9),
        disturbance=neighbours.share(),
    )


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _child(address: tuple[str, int], send: Callable[[socket.socket], None]) -> None:
    with socket.create_connection(address) as sock:
        try:
            while True:
                send(sock)
        except ConnectionError:
            return


def _send_bytes(sock: socket.socket, data: bytes = bytes(LOT_BYTES)) -> None:
    sock.sendall(data)


def _send_file(sock: socket.socket, path: str) -> None:
    with Path(path).open("rb", buffering=0) as file:
        for lot in range(SETTLE_LOTS):
            position, end = lot * LOT_BYTES, (lot + 1) * LOT_BYTES
            while position < end:
                position += os.sendfile(sock.fileno(), file.fileno(), position, end - position)


def _receive(
    sock: socket.socket,
    buffer: memoryview,
    store: Callable[[], None] | None,
    bytes_max: int,
    seconds_max: float,
) -> tuple[int, float]:
    received, started = 0, time.perf_counter()
    while received < bytes_max and time.perf_counter() - started < seconds_max:
        filled = 0
        while filled < LOT_BYTES:
            filled += sock.recv_into(buffer[filled:])
        if store is not None:
            store()
        received += LOT_BYTES
    return received, time.perf_counter() - started
