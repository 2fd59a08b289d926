"""A live view that stays open for five minutes while 1,000 messages a second come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from forebay.client import Admin
from forebay.testing import Broker
from support.console.event_stream import Events
from support.console.running_console import RunningConsole

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

RATE, SECONDS, PER_SECOND = 1000, 300, 20
WARM_UP = 60 * RATE
BEHIND_MAX = 5 * RATE
"""Messages that were acknowledged and are neither shown nor counted yet; a busy machine stops for seconds."""
GROWTH_BYTES_MAX = 16 << 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=True) as started:
        with Admin(started.bootstrap_servers) as admin:
            admin.create_topic("flow", partitions=2)
        yield started


class Flow:
    """Sends at a steady rate from a thread, and counts what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.acknowledged = 0
        self.sent = 0
        self._thread = threading.Thread(target=self._run, name="flow")

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while self.sent < RATE * SECONDS:
            for _ in range(RATE // PER_SECOND):
                self._producer.produce("flow", b'{"number": %d}' % self.sent, on_delivery=self._count)
                self.sent += 1
            self._producer.poll(0)
            time.sleep(max(0.0, began + self.sent / RATE - time.monotonic()))
        self._producer.flush(60)

    def _count(self, error: object, _message: object) -> None:
        assert error is None
        self.acknowledged += 1


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_a_live_view_neither_falls_behind_nor_grows(console: RunningConsole, broker: Broker) -> None:
    events = Events(console, "sources=tail&tail_topic=flow")
    events.next("tailing")
    flow = Flow(broker.bootstrap_servers)
    flow.start()
    told, furthest, warm_bytes = 0, 0, 0
    while told < RATE * SECONDS:
        acknowledged = flow.acknowledged  # before the next event, which may tell of more
        data = events.next("messages")
        told += len(data["rows"]) + data["skipped"]
        furthest = max(furthest, acknowledged - told)
        if not warm_bytes and told >= WARM_UP:
            warm_bytes = resident_bytes()
    flow.finish()
    events.close()
    assert told == flow.sent == flow.acknowledged
    assert furthest < BEHIND_MAX
    assert resident_bytes() - warm_bytes < GROWTH_BYTES_MAX
