"""The clients of the cluster demo: a producer that never stops, and a group of consumers that follows it.

Both keep a ledger: what was acknowledged, what was read, and the longest wait since one last looked.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer

TOPIC = "orders"
CUSTOMERS = 97
ORDERS_PER_SECOND = 2_000
PATIENCE_SECONDS = 30.0


def ignore(_error: KafkaError) -> None:
    """While a broker is down the client reports lost connections here; it goes on by itself."""


class Runner:
    """Something that runs in threads of its own while a `with` block does."""

    def __init__(self, *works: Callable[[], None]) -> None:
        self.stopping = threading.Event()
        self._threads = [threading.Thread(target=work) for work in works]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()


class Orders(Runner):
    """Numbered orders of many customers, acks=all, at a steady pace."""

    def __init__(self, servers: str) -> None:
        super().__init__(self._run)
        self.acknowledged: set[int] = set()
        self.errors = 0
        self._longest_s = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                "error_cb": ignore,
            }
        )

    def longest_wait_s(self) -> float:
        """Of any order, from sending to acknowledge, since this was last asked."""
        longest, self._longest_s = self._longest_s, 0.0
        return longest

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.acknowledged) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)

    def _run(self) -> None:
        sent = 0
        begun = time.monotonic()
        while not self.stopping.is_set():
            due = int((time.monotonic() - begun) * ORDERS_PER_SECOND)
            for number in range(sent, due):
                self._send(number)
            sent = due
            self._producer.poll(0.01)
        self._producer.flush(PATIENCE_SECONDS)

    def _send(self, number: int) -> None:
        sent = time.perf_counter()

        def done(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.errors += 1
                return
            self.acknowledged.add(number)
            self._longest_s = max(self._longest_s, time.perf_counter() - sent)

        self._producer.produce(TOPIC, f"{number}", key=f"customer-{number % CUSTOMERS:02}", on_delivery=done)


class Billing(Runner):
    """A group of consumers that together read every order at least once."""

    def __init__(self, servers: str, members: int) -> None:
        super().__init__(*([self._run] * members))
        self.read: Counter[int] = Counter()
        self._servers = servers
        self._lock = threading.Lock()

    def wait_for(self, orders: set[int]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not orders <= self.read.keys():
            time.sleep(0.05)

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "log_level": 0,
                "error_cb": ignore,
            }
        )
        consumer.subscribe([TOPIC])
        while not self.stopping.is_set():
            numbers = [int(m.value() or b"0") for m in consumer.consume(1_000, 0.1) if m.error() is None]
            with self._lock:
                self.read.update(numbers)
        consumer.close()
