"""Topics whose history is in an object store: what copying costs a producer and a disk, and old data read.

The store is a directory on the same disk. Producing at a steady pace is measured in turns, into a topic that
is copied and into one that is not, on one broker. Old data comes through the broker to one client that only
counts its bytes, from the store at first, and again from the broker's cache.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from pathlib import Path

from bench.client import Client
from bench.frames import (
    KB64_BATCH,
    MB_BATCH,
    MB_BATCH_RECORDS,
    fetch_frame,
    produce_frame,
)
from bench.latency import Latency, percentiles
from bench.load import RECEIVE_BUFFER_BYTES, connect, receive_exactly, receive_frame
from bench.report import Figure
from bench.server import Address, BenchError, ForebayServer
from bench.suite import Suite

GROUP = "history in an object store"
SEGMENT_BYTES = 64 << 20
LOCAL_BYTES = 128 << 20
STEADY_MB_PER_S = 30.0
TURN_S = 4.0
P99_RATIO_MAX = 1.1
FULL_SPEED_TURN_S = 6.0
FULL_SPEED_RATIO_MIN = 0.9
OLD_BATCHES = 1_000
"""Of a mebibyte."""
OLD_FETCH_BYTES = 4 << 20
OLD_MB_PER_S_MIN = 200.0
WAIT_S_MAX = 120.0
COPIED, PLAIN, OLD = "copied", "plain", "old"
OFTEN = ("log.retention.check.interval.ms=1000",)
"""So that old segments are deleted as soon of the topic that is not copied."""
NOT_TIERED = {
    "segment.bytes": str(SEGMENT_BYTES),
    "retention.bytes": str(LOCAL_BYTES),
    "file.delete.delay.ms": "1000",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": str(SEGMENT_BYTES),
    "local.retention.bytes": str(LOCAL_BYTES),
    "retention.ms": "-1",
}


def tier_figures(suite: Suite) -> list[Figure]:
    store = suite.scratch / "history"
    store.mkdir()
    remote = f"forebay.remote.url={store.as_uri()}"
    with (
        ForebayServer(suite.scratch, "tiers", remote, *OFTEN) as broker,
        Client(broker.address) as client,
    ):
        broker.wait_until_loaded()
        client.create_topic(PLAIN, configs=NOT_TIERED)
        client.create_topic(COPIED, configs=TIERED)
        client.create_topic(OLD, configs=TIERED)
        return [
            *_steady_figures(suite, broker),
            *_full_speed_figures(suite, broker, store),
            *_old_figures(broker, client, store),
        ]


# -- producing while segments are copied -------------------------------------------------------------------


def _steady_figures(suite: Suite, broker: ForebayServer) -> list[Figure]:
    found: dict[str, list[Latency]] = {COPIED: [], PLAIN: []}
    cpu_s = dict.fromkeys(found, 0.0)
    disk_bytes = 0
    for _ in suite.each_round("producing at a steady pace"):
        for topic, turns in found.items():
            before = broker.cpu_s()
            latency, largest = _steady(broker.address, topic, broker.data / f"{topic}-0")
            turns.append(latency)
            cpu_s[topic] += broker.cpu_s() - before
            if topic == COPIED:
                disk_bytes = max(disk_bytes, largest)
    p50, p99 = (
        {topic: statistics.median(getattr(each, name) for each in turns) for topic, turns in found.items()}
        for name in ("p50_us", "p99_us")
    )
    seconds = suite.rounds * TURN_S
    return [
        _beside(f"produce 64 KB, p50 at {STEADY_MB_PER_S:.0f} MB/s", p50[COPIED], p50[PLAIN], "µs"),
        _beside("p99", p99[COPIED], p99[PLAIN], "µs", at_most=P99_RATIO_MAX),
        _beside("broker CPU", 100 * cpu_s[COPIED] / seconds, 100 * cpu_s[PLAIN] / seconds, "%"),
        Figure(
            group=GROUP,
            name="local disk at most, deleted files included",
            value=disk_bytes / (1 << 20),
            unit="MiB",
            at_most=(LOCAL_BYTES + 2 * SEGMENT_BYTES) / (1 << 20),
            judged="value",
        ),
    ]


def _beside(name: str, copied: float, plain: float, unit: str, at_most: float | None = None) -> Figure:
    return Figure(
        group=GROUP,
        name=name,
        value=copied,
        unit=unit,
        limit=plain,
        limit_name="not copied",
        at_most=at_most,
    )


def _steady(address: Address, topic: str, directory: Path) -> tuple[Latency, int]:
    """Batches at a steady pace for a turn: how long each took, and how large the partition's files were."""
    frame = produce_frame(topic, KB64_BATCH)
    pause_s = len(KB64_BATCH) / 1e6 / STEADY_MB_PER_S
    took_ns: list[int] = []
    largest = 0
    with connect(address) as sock:
        end = time.monotonic() + TURN_S
        due = look_at = time.monotonic()
        while due < end:
            now = time.monotonic()
            if now < due:
                time.sleep(due - now)
            started = time.perf_counter_ns()
            sock.sendall(frame)
            receive_frame(sock)
            took_ns.append(time.perf_counter_ns() - started)
            due += pause_s
            if due > look_at:
                largest = max(largest, _size(directory))
                look_at = due + 0.05
    if len(took_ns) < 0.9 * TURN_S / pause_s:
        raise BenchError(f"{topic} did not take {STEADY_MB_PER_S:.0f} MB/s")
    return percentiles(took_ns), largest


def _full_speed_figures(suite: Suite, broker: ForebayServer, store: Path) -> list[Figure]:
    """A mebibyte at a time, as fast as it is taken. What is left to copy is waited for after each turn."""
    found: dict[str, list[float]] = {COPIED: [], PLAIN: []}
    copied_bytes = 0
    for _ in suite.each_round("producing at full speed"):
        for topic, turns in found.items():
            before = _stored(store)
            turns.append(_full_speed(broker.address, topic))
            copied_bytes += _stored(store) - before
            if topic == COPIED:
                _wait_until_copied(broker, topic, store)
    copied, plain = (statistics.median(found[topic]) for topic in (COPIED, PLAIN))
    copied_mb_per_s = copied_bytes / 1e6 / suite.rounds / FULL_SPEED_TURN_S
    return [
        Figure(
            group=GROUP,
            name="produce 1 MB at full speed",
            value=copied,
            unit="MB/s",
            limit=plain,
            limit_name="not copied",
            at_least=FULL_SPEED_RATIO_MIN,
        ),
        Figure(group=GROUP, name="copied meanwhile", value=copied_mb_per_s, unit="MB/s"),
    ]


def _full_speed(address: Address, topic: str) -> float:
    frame = produce_frame(topic, MB_BATCH)
    count = 0
    with connect(address) as sock:
        started = time.monotonic()
        while time.monotonic() < started + FULL_SPEED_TURN_S:
            sock.sendall(frame)
            receive_frame(sock)
            count += 1
        return count * len(MB_BATCH) / 1e6 / (time.monotonic() - started)


def _size(directory: Path) -> int:
    total = 0
    for path in directory.iterdir():
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # it was just removed
    return total


def _stored(store: Path) -> int:
    """Bytes in the object store. They grow while a segment is copied."""
    return sum(path.stat().st_size for path in store.rglob("*.segment*") if path.exists())


def _wait_until_copied(broker: ForebayServer, topic: str, store: Path) -> None:
    """And deleted from the local disk."""
    deadline = time.monotonic() + WAIT_S_MAX
    copied = -1
    while _size(broker.data / f"{topic}-0") > LOCAL_BYTES + SEGMENT_BYTES or copied != _stored(store):
        if time.monotonic() > deadline:
            raise BenchError(f"the local disk has more of {topic} than it should")
        copied = _stored(store)
        time.sleep(1.0)


# -- reading old data through the broker -------------------------------------------------------------------


def _old_figures(broker: ForebayServer, client: Client, store: Path) -> list[Figure]:
    print("  reading old data", flush=True)
    client.fill(OLD, OLD_BATCHES)
    _wait_until_copied(broker, OLD, store)
    os.sync()  # what was just written must not be in the way of what is read
    batches = OLD_BATCHES - (LOCAL_BYTES + SEGMENT_BYTES) // len(MB_BATCH)
    first_s, store_mb_per_s, store_cpu_s = _read_old(broker, batches)
    _, cached_mb_per_s, cached_cpu_s = _read_old(broker, batches)
    gb = batches * len(MB_BATCH) / 1e9
    return [
        _old("the first chunk", first_s * 1000, "ms"),
        _old("old data from the store", store_mb_per_s, "MB/s", at_least=OLD_MB_PER_S_MIN),
        _old("old data from the store, broker CPU", store_cpu_s / gb, "s/GB"),
        _old("old data from the cache", cached_mb_per_s, "MB/s", at_least=OLD_MB_PER_S_MIN),
        _old("old data from the cache, broker CPU", cached_cpu_s / gb, "s/GB"),
    ]


def _old(name: str, value: float, unit: str, at_least: float | None = None) -> Figure:
    return Figure(group=GROUP, name=name, value=value, unit=unit, at_least=at_least, judged="value")


def _read_old(broker: ForebayServer, batches: int) -> tuple[float, float, float]:
    """Seconds until the first batches came, MB/s after them, and the broker's CPU for all of it."""
    buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
    before_s = broker.cpu_s()
    started = time.perf_counter()
    with connect(broker.address) as sock:
        read = _fetch(sock, buffer, 0)
        first_s = time.perf_counter() - started
        after_first, started = read, time.perf_counter()
        while read < batches:
            read += _fetch(sock, buffer, read)
        seconds = time.perf_counter() - started
    mb_per_s = (read - after_first) * len(MB_BATCH) / 1e6 / seconds
    return first_s, mb_per_s, broker.cpu_s() - before_s


def _fetch(sock: socket.socket, buffer: memoryview, batch: int) -> int:
    """How many whole batches came from this one on."""
    offset = batch * MB_BATCH_RECORDS
    sock.sendall(fetch_frame(OLD, offset, max_bytes=OLD_FETCH_BYTES, max_wait_ms=10_000))
    receive_exactly(sock, buffer[:4])
    left = size = int.from_bytes(buffer[:4], "big")
    while left:
        part = buffer[: min(left, len(buffer))]
        receive_exactly(sock, part)
        left -= len(part)
    count = size // len(MB_BATCH)
    if not count:
        raise BenchError(f"nothing came from offset {offset}")
    return count
