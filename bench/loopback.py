"""What loopback TCP carries between two processes that do nothing else: 1 MB writes, 1 MB reads."""

from __future__ import annotations

import multiprocessing
import resource
import socket
import time
from dataclasses import dataclass

from bench.machine import Neighbours

WRITE_BYTES = 1 << 20
SETTLE_WRITES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Loopback:
    mb_per_s: float
    receive_cpu_s_per_gb: float
    send_cpu_s_per_gb: float
    disturbance: float


def loopback(seconds: float = 0.7) -> Loopback:
    """One connection from one sending process to this one."""
    neighbours = Neighbours()
    children_cpu_s = _cpu_s(resource.RUSAGE_CHILDREN)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = multiprocessing.get_context("fork").Process(
            target=_send, args=(listener.getsockname(),), daemon=True
        )
        sender.start()
        sock, _ = listener.accept()
    own_cpu_s = _cpu_s(resource.RUSAGE_SELF)
    with sock:
        settled_bytes, _ = _receive(sock, SETTLE_WRITES * WRITE_BYTES, 60.0)
        received_bytes, elapsed_s = _receive(sock, 1 << 60, seconds)
    own_cpu_s = _cpu_s(resource.RUSAGE_SELF) - own_cpu_s
    sender.join()
    total_gb = (settled_bytes + received_bytes) / 1e9
    return Loopback(
        mb_per_s=received_bytes / 1e6 / elapsed_s,
        receive_cpu_s_per_gb=own_cpu_s / total_gb,
        send_cpu_s_per_gb=(_cpu_s(resource.RUSAGE_CHILDREN) - children_cpu_s) / total_gb,
        disturbance=neighbours.share(),
    )


def _cpu_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _send(address: tuple[str, int]) -> None:
    data = bytes(WRITE_BYTES)
    with socket.create_connection(address) as sock:
        try:
            while True:
                sock.sendall(data)
        except ConnectionError:
            return


def _receive(sock: socket.socket, bytes_max: int, seconds_max: float) -> tuple[int, float]:
    buffer = memoryview(bytearray(WRITE_BYTES))
    received, started = 0, time.perf_counter()
    while received < bytes_max and time.perf_counter() - started < seconds_max:
        received += sock.recv_into(buffer)
    return received, time.perf_counter() - started
