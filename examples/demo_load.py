"""Numbered orders: sent by a producer that knows which ones were acknowledged, read back and checked."""

from __future__ import annotations

import functools
import time
from collections import Counter
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from demo_stage import CUSTOMERS, PARTITIONS, PATIENCE_SECONDS, TOPIC, Failed


def ignore(_error: KafkaError) -> None:
    """While a broker is down the client reports lost connections here; it goes on by itself."""


class Load:
    """Sends numbered orders of many customers, and knows which ones were acknowledged."""

    def __init__(self, address: str) -> None:
        self.acknowledged: set[int] = set()
        self.problems: list[str] = []
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": ignore,
            }
        )

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            customer = f"customer-{number % CUSTOMERS:02}"
            value = f'{{"order": {number}, "customer": "{customer}", "total": {number % 500}.50}}'
            done = functools.partial(self._done, number)
            self._producer.produce(
                TOPIC, key=customer, value=value, headers={"n": str(number)}, on_delivery=done
            )
            self._producer.poll(0)
        self.sent += count

    def finish(self) -> None:
        left = self._producer.flush(PATIENCE_SECONDS)
        if left or self.problems:
            raise Failed(
                f"{left} messages were not acknowledged, {len(self.problems)} failed: {self.problems[:1]}"
            )

    def wait_for(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.acknowledged) < count and time.monotonic() < deadline:
            self._producer.poll(0.05)

    def _done(self, number: int, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.problems.append(error.str())
        else:
            self.acknowledged.add(number)


class Read(NamedTuple):
    numbers: Counter[int]
    by_partition: dict[int, list[int]]
    """The offsets in each partition, in the order they came."""
    out_of_order: int
    seconds: float


def read_all(address: str, topic: str = TOPIC, partitions: int = PARTITIONS) -> Read:
    """Everything in the topic that is committed, with each customer's order of orders checked."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # How long the broker may wait for more before it says that the end is reached.
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            "error_cb": ignore,
        }
    )
    begun = time.perf_counter()
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
    try:
        messages = _until_the_end(consumer, partitions)
    finally:
        consumer.close()
    seconds = time.perf_counter() - begun
    offsets: dict[int, list[int]] = {number: [] for number in range(partitions)}
    last: dict[bytes, int] = {}
    disorder = 0
    for message in messages:
        offsets[message.partition() or 0].append(message.offset() or 0)
        key, number = message.key() or b"", number_of(message)
        disorder += number <= last.get(key, -1)
        last[key] = number
    return Read(Counter(map(number_of, messages)), offsets, disorder, seconds)


def _until_the_end(consumer: Consumer, partitions: int) -> list[Message]:
    messages: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(ended) < partitions:
        if time.monotonic() > deadline:
            raise Failed("the end of the topic was not reached in time")
        for message in consumer.consume(1000, 0.05):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
            elif not error.retriable():
                raise Failed(error.str())
    return messages


def number_of(message: Message) -> int:
    headers = message.headers()
    assert isinstance(headers, list)
    return int(headers[0][1] or 0)


def check(read: Read, expected: int, *, has_markers: bool = False) -> None:
    """The markers of transactions take offsets that no message has."""
    lost = expected - len(read.numbers)
    doubled = sum(read.numbers.values()) - len(read.numbers)
    gaps = sum(offsets != list(range(len(offsets))) for offsets in read.by_partition.values())
    if lost or doubled or (gaps and not has_markers) or read.out_of_order:
        raise Failed(
            f"{lost} lost, {doubled} doubled, {read.out_of_order} out of order, {gaps} partitions with gaps"
        )
