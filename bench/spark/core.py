"""One core without Spark: records decoded and rows encoded per second of CPU; and the memory of workers."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.machine import CLOCK_TICKS_PER_S, tree
from bench.server import BenchError
from bench.spark.loads import Bench, source_topic
from forebay.spark.arrow.schema import spark_schema
from forebay.spark.sink.encode import Rows, cut, encode
from forebay.spark.sink.partitioning import Partitioner
from forebay.spark.sink.producer import Limits
from forebay.spark.source.batch_reader import TopicReader
from forebay.spark.source.options import batch_options

ENCODE_ROWS = 80_000
ENCODE_ROUNDS = 10
WORKER_MARK = b"SPARK_PYTHON_RUNTIME=PYTHON_WORKER"
"""Spark sets it for its Python workers, and for the daemon that forks them."""


def decode_rows_per_s(bench: Bench, size: int) -> float:
    """Fetched from the broker and decoded to Arrow, per second of this process's CPU."""
    options = batch_options({"kafka.bootstrap.servers": bench.bootstrap, "subscribe": source_topic(size)})
    reader = TopicReader(options, spark_schema(headers=False))
    tasks = reader.partitions()
    started = time.process_time()
    rows = sum(batch.num_rows for task in tasks for batch in reader.read(task))
    return float(rows / (time.process_time() - started))


def encode_rows_per_s(size: int) -> float:
    """Assigned to two partitions by key, sorted and encoded to records, per second of CPU."""
    rows = Rows(
        key=pa.array([b"%d" % n for n in range(ENCODE_ROWS)], pa.binary()),
        value=pa.array([b"." * size] * ENCODE_ROWS, pa.binary()),
        timestamp=np.full(ENCODE_ROWS, 1_700_000_000_000, np.int64),
    )
    partitioner = Partitioner("any", 2, 0)
    started = time.process_time()
    for _ in range(ENCODE_ROUNDS):
        assigned = partitioner.assign(rows.key, None)
        order = np.argsort(assigned, kind="stable")
        ordered = rows.take(order)
        border = int(np.searchsorted(assigned[order], 1))
        for _ in encode(ordered, cut(ordered, [0, border], Limits().batch_bytes)):
            pass
    return ENCODE_ROUNDS * ENCODE_ROWS / (time.process_time() - started)


class WorkerMemory:
    """The most that any Python worker of this process's Spark has had resident, whenever `look` was called.

    Spark lets workers go that have had nothing to do for a minute, so look right after they have worked. They
    are known by their environment: our session starts them by another command than Spark does.
    """

    def __init__(self) -> None:
        self.peak_mb = 0.0

    def look(self) -> None:
        peaks = [_peak_mb(pid) for pid in _descendants(os.getpid()) if _is_worker(pid)]
        if not peaks:
            raise BenchError("no Python worker of Spark is running, so that its memory cannot be measured")
        self.peak_mb = max(self.peak_mb, *peaks)


def _is_worker(pid: int) -> bool:
    return WORKER_MARK in _proc(pid, "environ").split(b"\0")


class Cpu:
    """CPU time of everything that this process has started: JVM, Python workers, broker.

    Spark lets idle workers go, and nobody inherits their time: what ends before it is asked for is left out.
    """

    def __init__(self) -> None:
        self._before = self._now()

    def used_s(self) -> float:
        """Since this was made."""
        used = sum(ticks - self._before.get(pid, 0) for pid, ticks in self._now().items())
        return used / CLOCK_TICKS_PER_S

    def _now(self) -> dict[int, int]:
        return {pid: sum(_ticks(pid)) for pid in _descendants(os.getpid())}


def _ticks(pid: int) -> list[int]:
    """User and system time of a process."""
    return [int(field) for field in _proc(pid, "stat").rpartition(b")")[2].split()[11:13]]


def _peak_mb(pid: int) -> float:
    found = re.search(rb"VmHWM:\s+(\d+) kB", _proc(pid, "status"))
    return int(found[1]) / 1000 if found else 0.0


def _descendants(pid: int) -> set[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        stat = _proc(int(path.name), "stat").rpartition(b")")[2].split()
        if len(stat) > 1:
            parents[int(path.name)] = int(stat[1])
    return tree(pid, parents) - {pid}


def _proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""  # it has ended
