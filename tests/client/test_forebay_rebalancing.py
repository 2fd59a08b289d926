"""Members of a group that come and go while they copy messages: the delivery modes hold over rebalances."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forebay.client import Consumer, Delivery, Message, Producer, Record, process
from forebay.testing import Broker

PARTITIONS = 4
TOTAL = 2000
WORKERS = 3
BATCHES_PER_LIFE = 6
CLASSIC: dict[str, Any] = {"heartbeat.interval.ms": 100}
IN_STEPS: dict[str, dict[str, Any]] = {
    "cooperative": {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
    "assigned by the broker": {"group.protocol": "consumer"},
}


class Flow:
    """One source, one sink, and workers that each live for a few batches."""

    def __init__(
        self, servers: str, topic: str, delivery: Delivery, settings: dict[str, Any] = CLASSIC
    ) -> None:
        self.servers = servers
        self.source = topic
        self.sink = f"{topic}-sink"
        self.delivery = delivery
        self.settings = settings
        self.ended = threading.Event()

    def work(self, worker: int) -> None:
        while not self.ended.is_set():
            self._one_life(worker)

    def _one_life(self, worker: int) -> None:
        lives = 0

        def stop() -> bool:
            nonlocal lives
            lives += 1
            return self.ended.is_set() or lives > BATCHES_PER_LIFE

        name = f"{self.sink}-{worker}" if self.delivery == "exactly-once" else None
        with (
            Producer(
                self.servers, delivery=self.delivery, profile="latency", transactional_id=name
            ) as producer,
            Consumer(
                self.servers,
                self.source,
                group=self.source,
                delivery=self.delivery,
                profile="latency",
                settings=self.settings,
            ) as consumer,
        ):
            process(consumer, producer, self._transform, batch_max=40, stop=stop)

    def _transform(self, message: Message) -> Record:
        return Record(topic=self.sink, key=message.key, value=message.value)

    def feed(self) -> None:
        with Producer(self.servers, profile="latency") as producer:
            for number in range(TOTAL):
                producer.send(self.source, str(number), key=str(number % 17))

    def copied(self, until: int) -> Counter[int]:
        """What is in the sink, once it holds this many different ones."""
        found: Counter[int] = Counter()
        with Consumer(self.servers, self.sink, group=f"{self.sink}-check", profile="latency") as consumer:
            while len(found) < until:
                found[int(next(consumer).value or b"")] += 1
            self.ended.set()
            while message := consumer.poll(1.0):
                found[int(message.value or b"")] += 1
        return found


@pytest.mark.forebay_topic(partitions=PARTITIONS)
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_restless_group_misses_nothing(
    forebay_broker: Broker, forebay_topic: str, delivery: Delivery
) -> None:
    check(Flow(forebay_broker.bootstrap_servers, forebay_topic, delivery))


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.forebay_topic(partitions=PARTITIONS)
@pytest.mark.parametrize("settings", IN_STEPS.values(), ids=IN_STEPS)
def test_a_restless_group_whose_partitions_move_in_steps(
    forebay_broker: Broker, forebay_topic: str, settings: dict[str, Any]
) -> None:
    check(Flow(forebay_broker.bootstrap_servers, forebay_topic, "exactly-once", settings))


def check(flow: Flow) -> None:
    flow.feed()
    with ThreadPoolExecutor(WORKERS) as pool:
        workers = [pool.submit(flow.work, number) for number in range(WORKERS)]
        try:
            found = flow.copied(TOTAL)
        finally:
            flow.ended.set()
        for worker in workers:
            worker.result()
    assert sorted(found) == list(range(TOTAL))
    if flow.delivery == "exactly-once":
        assert max(found.values()) == 1
