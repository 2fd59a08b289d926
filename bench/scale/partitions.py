"""A single broker by its number of partitions: created, at rest, one message to each, started again."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from bench.client import Client, expect_success
from bench.frames import PRODUCE_VERSION, batch_of, produce_request
from bench.scale.curve import Row
from bench.server import BenchError, ForebayServer
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000)
PER_TOPIC = 10_000
WRITTEN_MAX = 30_000
"""Larger brokers get a message to so many of their partitions."""
IN_FLIGHT = 200
"""Requests with a message each, of one connection. librdkafka does the same, and takes 54 s of CPU for 30,000
partitions."""
IDLE_S = 5.0
QUIET_S = 0.5
SETTLE_S_MAX = 120.0
CREATE_MS_MAX = 100_000


def partition_curve(scratch: Path, sizes: tuple[int, ...]) -> list[Row]:
    return [_measure(scratch, size) for size in sizes]


def _measure(scratch: Path, size: int) -> Row:
    name = f"partitions-{size}"
    with ForebayServer(scratch, name, "forebay.warm.up.enable=false") as broker:
        _warm(broker)
        settle(broker)
        row: Row = {"partitions": size}
        before = broker.rss_bytes()
        row["create: CPU s"], row["create: s"] = timed(broker, lambda: _create(broker, size))
        settle(broker)
        row["KB each, unused"] = (broker.rss_bytes() - before) / size / 1000
        row["idle CPU %"] = idle_percent(broker)
        row["metadata of all: CPU ms"] = 1000 * timed(broker, lambda: _ask_for_all(broker, size))[0]
        written = min(size, WRITTEN_MAX)
        cpu_s, took_s = timed(broker, lambda: _write_to_each(broker, written))
        row["first message: CPU ms"] = 1000 * cpu_s / written
        row["first messages a second"] = written / took_s
        settle(broker)
        row["KB each, written"] = (broker.rss_bytes() - before) / written / 1000
        row["open files"] = len(os.listdir(f"/proc/{broker.process.pid}/fd"))  # noqa: PTH208
        row["clean stop: s"] = _stop(broker)
    with ForebayServer(scratch, name) as broker:
        row["start: s"] = broker.start_s
        broker.process.kill()
        broker.process.wait()
    with ForebayServer(scratch, name) as broker:
        row["start after kill -9: s"] = broker.start_s
        row["first answer after it: ms"] = 1000 * timed(broker, lambda: _write_to_last(broker, written))[1]
        settle(broker)
        row["all open: CPU s"] = broker.cpu_s()
    print(f"  {row}", flush=True)
    return row


def _warm(broker: ForebayServer) -> None:
    """Have everything imported that is used below."""
    with Client(broker.address) as client:
        client.create_topic("warm")
    _write_to_each(broker, 1, "warm")


def timed(broker: ForebayServer, work: Any) -> tuple[float, float]:
    """CPU of the broker, and time, in seconds."""
    began_s, cpu_s = time.perf_counter(), broker.cpu_s()
    work()
    return broker.cpu_s() - cpu_s, time.perf_counter() - began_s


def settle(broker: ForebayServer) -> None:
    """Wait until the broker does nothing any more."""
    deadline, cpu_s = time.monotonic() + SETTLE_S_MAX, -1.0
    while broker.cpu_s() - cpu_s > 0.05 * QUIET_S and time.monotonic() < deadline:
        cpu_s = broker.cpu_s()
        time.sleep(QUIET_S)


def idle_percent(broker: ForebayServer) -> float:
    cpu_s = broker.cpu_s()
    time.sleep(IDLE_S)
    return 100 * (broker.cpu_s() - cpu_s) / IDLE_S


def _topics(size: int) -> list[tuple[str, int]]:
    return [
        (f"wide-{number}", min(PER_TOPIC, size - number * PER_TOPIC))
        for number in range((size + PER_TOPIC - 1) // PER_TOPIC)
    ]


def _create(broker: ForebayServer, size: int) -> None:
    with Client(broker.address) as client:
        for name, partitions in _topics(size):
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            answer = client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_MS_MAX), 5)
            expect_success(f"creating {name}", answer.topics[0].error_code)


def _ask_for_all(broker: ForebayServer, size: int) -> None:
    with Client(broker.address) as client:
        found = sum(
            len(client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 5).topics[0].partitions)
            for name, _ in _topics(size)
        )
    if found != size:
        raise BenchError(f"the metadata shows {found} partitions of {size}")


def _write_to_each(broker: ForebayServer, count: int, topic: str = "") -> None:
    """A message to each partition, all of them acknowledged."""
    batch = batch_of(1, 100)
    waiting = 0
    with Client(broker.address) as client:

        def read() -> None:
            (found,) = client.read().responses[0].partition_responses
            expect_success("a message", found.error_code)

        for name, partitions in [(topic, count)] if topic else _topics(count):
            for partition in range(partitions):
                request = produce_request(name, batch, partition=partition, acks=-1)
                client.post(request, PRODUCE_VERSION)
                waiting += 1
                if waiting == IN_FLIGHT:
                    read()
                    waiting -= 1
        for _ in range(waiting):
            read()


def _write_to_last(broker: ForebayServer, written: int) -> None:
    """To the last partition that was written: the broker has come to others first."""
    name, partitions = _topics(written)[-1]
    with Client(broker.address) as client:
        answer = client.ask(
            produce_request(name, batch_of(1, 100), partition=partitions - 1), PRODUCE_VERSION
        )
    expect_success("a message", answer.responses[0].partition_responses[0].error_code)


def _stop(broker: ForebayServer) -> float:
    began_s = time.perf_counter()
    broker.process.send_signal(signal.SIGTERM)
    broker.process.wait(SETTLE_S_MAX)
    return time.perf_counter() - began_s
