"""The clients of the second chapter: a producer that never stops, and a group of consumers that follows it.

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

from demo_load import ignore, number_of
from demo_stage import CUSTOMERS, PATIENCE_SECONDS, TOPIC, Failed, until

GROUP = "billing"
ORDERS_PER_SECOND = 1_000
UNDER_WAY_MAX = 50_000


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
        self.sent = 0
        self.errors: list[str] = []
        self._longest_s = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
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
        until(lambda: len(self.acknowledged) >= wanted, f"{count:,} more orders are acknowledged")

    def finish(self) -> None:
        """Send no more, and wait until everything that was sent is acknowledged; raises Failed."""
        self.stop()
        if self.errors or len(self.acknowledged) < self.sent:
            raise Failed(f"of {self.sent:,} orders {len(self.acknowledged):,} came in: {self.errors[:1]}")

    def _run(self) -> None:
        begun = time.monotonic()
        while not self.stopping.is_set():
            room = UNDER_WAY_MAX - (self.sent - len(self.acknowledged))
            due = min(int((time.monotonic() - begun) * ORDERS_PER_SECOND), self.sent + room)
            for number in range(self.sent, due):
                self._send(number)
            self.sent = max(self.sent, due)
            self._producer.poll(0.01)
        self._producer.flush(PATIENCE_SECONDS)

    def _send(self, number: int) -> None:
        sent = time.perf_counter()

        def done(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.errors.append(error.str())
                return
            self.acknowledged.add(number)
            self._longest_s = max(self._longest_s, time.perf_counter() - sent)

        customer = f"customer-{number % CUSTOMERS:02}"
        value = f'{{"order": {number}, "customer": "{customer}"}}'
        self._producer.produce(TOPIC, value, customer, headers={"n": str(number)}, on_delivery=done)


class Billing(Runner):
    """A group of consumers that together read every order at least once."""

    def __init__(self, servers: str, members: int) -> None:
        super().__init__(*([self._run] * members))
        self.read: Counter[int] = Counter()
        self.stored: set[tuple[int, int | None, int | None]] = set()
        """Number, partition and offset of each order."""
        self._servers = servers
        self._lock = threading.Lock()

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.read) >= count, f"the group reads {count:,} orders")

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                "log_level": 0,
                "error_cb": ignore,
            }
        )
        consumer.subscribe([TOPIC])
        while not self.stopping.is_set():
            found = [each for each in consumer.consume(1_000, 0.1) if each.error() is None]
            with self._lock:
                self.read.update(map(number_of, found))
                self.stored.update((number_of(each), each.partition(), each.offset()) for each in found)
        consumer.close()
