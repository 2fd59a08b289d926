"""`make demo`: a broker, real clients, and what happens when the broker is killed in the middle of it all.

Everything here is what a user would do: the broker is a child process of `forebay serve`, the client is
confluent-kafka. The broker listens on a free port of the loopback interface, and its data is gone afterwards.
"""

from __future__ import annotations

import functools
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.table import Table

from demo_groups import INVOICES, demo_group, demo_transfer
from demo_stage import CUSTOMERS, MESSAGES, PARTITIONS, PATIENCE_SECONDS, TOPIC, Broker, Failed, console, step


class Load:
    """Sends numbered orders of many customers, and knows which ones the broker has acknowledged."""

    def __init__(self, address: str) -> None:
        self.acknowledged: set[int] = set()
        self.problems: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "compression.type": "zstd",
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": _ignore,
            }
        )

    def send(self, numbers: range) -> None:
        for number in numbers:
            customer = f"customer-{number % CUSTOMERS:02}"
            value = f'{{"order": {number}, "customer": "{customer}", "total": {number % 500}.50}}'
            done = functools.partial(self._done, number)
            self._producer.produce(
                TOPIC, key=customer, value=value, headers={"n": str(number)}, on_delivery=done
            )
            self._producer.poll(0)

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
        key, number = message.key() or b"", _number(message)
        disorder += number <= last.get(key, -1)
        last[key] = number
    return Read(Counter(map(_number, messages)), offsets, disorder, seconds)


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
            else:
                raise Failed(error.str())
    return messages


def _number(message: Message) -> int:
    headers = message.headers()
    assert isinstance(headers, list)
    return int(headers[0][1] or 0)


def _ignore(_error: KafkaError) -> None:
    """While the broker is down the client reports lost connections here; it goes on by itself."""


def check(read: Read, expected: int, *, has_markers: bool = False) -> None:
    """The markers of transactions take offsets that no message has."""
    lost = expected - len(read.numbers)
    doubled = sum(read.numbers.values()) - len(read.numbers)
    gaps = sum(offsets != list(range(len(offsets))) for offsets in read.by_partition.values())
    if lost or doubled or (gaps and not has_markers) or read.out_of_order:
        raise Failed(
            f"{lost} lost, {doubled} doubled, {read.out_of_order} out of order, {gaps} partitions with gaps"
        )


def show_partitions(broker: Broker, read: Read) -> None:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading in ("partition", "messages", "first offset", "last offset", "bytes stored"):
        table.add_column(heading, justify="right")
    for number, offsets in read.by_partition.items():
        cells = (number, len(offsets), offsets[0], offsets[-1], broker.bytes_on_disk(number))
        table.add_row(*(f"{cell:,}" for cell in cells))
    console.print(table)


def demo(broker: Broker) -> None:
    step(f"started a broker in {broker.start():.2f} s on {broker.address}")

    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(PATIENCE_SECONDS)
    step(f"created topic {TOPIC} with {PARTITIONS} partitions")

    load = Load(broker.address)
    begun = time.perf_counter()
    load.send(range(MESSAGES))
    load.finish()
    seconds = time.perf_counter() - begun
    step(f"produced {MESSAGES:,} messages with keys, zstd, acks=all: {MESSAGES / seconds:,.0f} a second")

    read = read_all(broker.address)
    check(read, MESSAGES)
    step(f"consumed them: {MESSAGES / read.seconds:,.0f} a second, {CUSTOMERS} keys, each in order")
    show_partitions(broker, read)

    demo_kill(broker, load)
    demo_group(broker.address, 2 * MESSAGES)
    demo_transfer(broker, 2 * MESSAGES)
    check(read_all(broker.address, INVOICES), 2 * MESSAGES, has_markers=True)
    step(f"consumed {2 * MESSAGES:,} invoices: none lost, none doubled")

    code = broker.end(signal.SIGTERM)
    if code != 0:
        raise Failed(f"the broker ended with code {code} after SIGTERM")
    step("stopped it cleanly")


def demo_kill(broker: Broker, load: Load) -> None:
    """The broker dies while messages are under way; the producer only notices that it takes longer."""
    load.send(range(MESSAGES, 2 * MESSAGES))
    load.wait_for(MESSAGES + MESSAGES // 10)
    broker.end(signal.SIGKILL)
    acknowledged = len(load.acknowledged) - MESSAGES
    step(f"produced {MESSAGES:,} more, and killed the broker (kill -9) after {acknowledged:,} acknowledges")
    step(f"started it again in {broker.start():.2f} s; the producer goes on by itself")
    load.finish()
    read = read_all(broker.address)
    check(read, 2 * MESSAGES)
    step(f"consumed everything: {2 * MESSAGES:,} messages, none lost, none doubled, all in order")
    show_partitions(broker, read)


def main() -> int:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        broker = Broker(Path(directory) / "data")
        try:
            demo(broker)
        except Failed as failure:
            console.print(f"[bold red]the demo failed:[/] {failure}")
            return 1
        finally:
            broker.end(signal.SIGKILL)
    console.print(f"[bold green]all as promised[/], in {time.perf_counter() - begun:.1f} s")
    console.print("Try it yourself: [bold].venv/bin/forebay serve[/], then [bold].venv/bin/forebay --help[/]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
