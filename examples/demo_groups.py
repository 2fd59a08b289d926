"""Two acts of the first chapter: a group whose members come and go, and a transfer that is exactly-once."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, TopicPartition

from demo_load import number_of
from demo_stage import PARTITIONS, PATIENCE_SECONDS, TOPIC, Broker, Failed, console, step, table
from forebay.client import Admin, Producer, Record, process
from forebay.client import Consumer as ForebayConsumer
from forebay.client import Message as ForebayMessage

INVOICES = "invoices"


class Member:
    """One member of a group that reads the orders, and commits what it has read before it gives them away."""

    def __init__(self, address: str, name: str) -> None:
        self.name = name
        self.numbers: list[int] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "billing",
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 100,
                "fetch.wait.max.ms": 20,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC], on_revoke=self._commit)

    @property
    def partitions(self) -> list[int]:
        return sorted(place.partition for place in self._consumer.assignment())

    def read(self, most: int) -> None:
        for _ in range(most):
            message = self._consumer.poll(0.005)
            if message is None or message.error() is not None:
                return
            self.numbers.append(number_of(message))

    def _commit(self, consumer: Consumer, _taken: list[TopicPartition]) -> None:
        if self.numbers:
            consumer.commit(asynchronous=False)

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def demo_group(address: str, expected: int) -> None:
    """Partitions move between members while they read; every order is read by one of them.

    That is at-least-once. They commit before they give a partition away, so what is read twice, if anything,
    is a message that librdkafka returns again after a rebalance has paused its partition (docs/groups.md).
    """
    with contextlib.ExitStack() as members:
        ada = members.enter_context(Member(address, "ada"))
        read_until(lambda: len(ada.partitions) == PARTITIONS, [ada])
        step("a group begins to read: ada has all partitions")
        ben = members.enter_context(Member(address, "ben"))
        with Member(address, "cleo") as cleo:
            everybody = [ada, ben, cleo]
            seconds = read_until(lambda: all(len(each.partitions) == 1 for each in everybody), everybody)
            step(f"ben and cleo join: rebalanced in {seconds:.2f} s, while ada reads on")
            read_until(lambda: all(len(each.numbers) > 500 for each in everybody), everybody)
            show_members(everybody)
        seconds = read_until(lambda: len(ada.partitions + ben.partitions) == PARTITIONS, [ada, ben])
        step(f"cleo leaves: her partition has a new reader after {seconds:.2f} s")
        # Counting is cheap, finding out which are missing is not: begin with it when there can be none.
        read_until(lambda: _count(everybody) >= expected and len(_times(everybody)) >= expected, [ada, ben])
    times = _times(everybody)
    if len(times) != expected:
        raise Failed(f"the group has read {len(times)} of {expected} orders")
    shares = ", ".join(f"{member.name} {len(member.numbers):,}" for member in everybody)
    again = sum(times.values()) - expected
    step(f"every one of {expected:,} orders was read, {again or 'none'} of them twice: {shares}")


def _count(members: Sequence[Member]) -> int:
    return sum(len(member.numbers) for member in members)


def _times(members: Sequence[Member]) -> Counter[int]:
    return Counter(number for member in members for number in member.numbers)


def read_until(condition: Callable[[], bool], members: Sequence[Member]) -> float:
    """Seconds until the condition holds; the members read meanwhile."""
    begun = time.perf_counter()
    while not condition():
        if time.perf_counter() - begun > PATIENCE_SECONDS:
            raise Failed(f"the group is stuck at {[member.partitions for member in members]}")
        for member in members:
            member.read(20)
    return time.perf_counter() - begun


def show_members(members: Sequence[Member]) -> None:
    shown = table("member", "partitions", "orders so far")
    for member in members:
        shown.add_row(member.name, str(member.partitions), f"{len(member.numbers):,}")
    console.print(shown)


def demo_transfer(broker: Broker, expected: int) -> None:
    """An invoice for every order, written in transactions; the broker is killed in the middle of one."""
    Admin(broker.address).create_topic(INVOICES, partitions=PARTITIONS)
    seen: set[int] = set()
    killed = False

    def invoice(order: ForebayMessage) -> Record:
        nonlocal killed
        seen.add(int(order.header("n") or 0))
        if len(seen) > expected // 2 and not killed:
            killed = True
            broker.end(signal.SIGKILL)
            step(f"killed the broker (kill -9) inside a transaction, after {len(seen):,} orders")
            step(f"started it again in {broker.start():.2f} s; the transfer goes on by itself")
        return Record(
            topic=INVOICES, key=order.key, value=b"invoice for " + (order.value or b""), headers=order.headers
        )

    quick = {"reconnect.backoff.max.ms": 200, "log_level": 0}
    step("exactly-once: an invoice for each order, with the offsets in one transaction")
    begun = time.perf_counter()
    with (
        ForebayConsumer(
            broker.address, TOPIC, group="invoicing", delivery="exactly-once", settings=quick
        ) as consumer,
        Producer(broker.address, delivery="exactly-once", settings=quick) as producer,
    ):
        deadline = time.monotonic() + PATIENCE_SECONDS
        process(
            consumer, producer, invoice, stop=lambda: len(seen) >= expected or time.monotonic() > deadline
        )
    step(f"transferred in {time.perf_counter() - begun:.1f} s")
