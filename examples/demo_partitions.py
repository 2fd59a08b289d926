"""The partitions chapter: 12 partitions become 4 under a producer and a group that never stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition

from demo_stage import CUSTOMERS, PATIENCE_SECONDS, TOPIC, Broker, Facts, Failed, console, step, table, until
from demo_traffic import GROUP, ORDERS_PER_SECOND, Billing, Orders
from demo_worker import QUIET
from forebay.client import Admin

BEFORE, AFTER = 12, 4
MEMBERS = 2
GRACE_SECONDS = 2


def play(short: bool) -> Facts:
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        broker = Broker(Path(directory) / "data", f"forebay.fold.grace.ms={GRACE_SECONDS * 1000}")
        try:
            started = broker.start()
            step(f"started a broker in {started:.2f} s on {broker.address}")
            return _play(broker.address, 1_000 if short else 2_000)
        finally:
            broker.end(signal.SIGKILL)


def _play(address: str, orders_each: int) -> Facts:
    admin = Admin(address, settings=QUIET)
    admin.create_topic(TOPIC, partitions=BEFORE)
    with Orders(address) as orders, Billing(address, MEMBERS) as billing:
        orders.wait_for_more(orders_each)
        step(f"{ORDERS_PER_SECOND:,} orders a second go to {BEFORE} partitions, and a group reads them")
        orders.longest_wait_s()
        _forebay(address, "topic", "alter", TOPIC, "--partitions", str(AFTER))
        step(f"forebay topic alter {TOPIC} --partitions {AFTER}")
        orders.wait_for_more(orders_each)
        first_new = orders.sent  # these, and all that follow, were sent after the change
        longest_s = orders.longest_wait_s()
        _show(_describe(address))
        until(lambda: not _unread(admin), "the group reads the closed partitions to their end")
        step("the group has read the closed partitions; now they are emptied, as retention does in its time")
        begun = time.perf_counter()
        until(lambda: _delete_closed(admin, _count(address)), "the closed partitions go")
        gone_s = time.perf_counter() - begun
        step(f"gone {gone_s:.1f} s later; the producer, which is librdkafka, never lowers its count")
        orders.wait_for_more(orders_each)
        orders.finish()
        billing.wait_for(orders.sent)
    _check(orders.sent, billing.stored, first_new)
    step(f"all {orders.sent:,} orders were read: none lost, none doubled, each customer in one partition")
    return [
        (f"{BEFORE} partitions became {AFTER}", f"no order waited longer than {longest_s * 1000:.0f} ms"),
        (f"{orders.sent:,} orders meanwhile", "none lost, none doubled, nobody was refused"),
        ("the closed partitions", f"read to their end, and gone {gone_s:.1f} s after they were empty"),
        ("new orders of a customer", "in one partition, during and after"),
    ]


def _check(sent: int, stored: set[tuple[int, int | None, int | None]], first_new: int) -> None:
    """Every order is stored once; whatever was sent after the change is where it belongs."""
    numbers = [number for number, _, _ in stored]
    if sorted(numbers) != list(range(sent)):
        doubled = len(numbers) - len(set(numbers))
        raise Failed(f"of {sent:,} orders {len(set(numbers)):,} were read, and {doubled:,} are stored twice")
    homes: dict[int, set[int]] = defaultdict(set)
    for number, partition, _ in stored:
        if number >= first_new:
            homes[number % CUSTOMERS].add(-1 if partition is None else partition)
    if any(len(partitions) > 1 or max(partitions) >= AFTER for partitions in homes.values()):
        raise Failed(f"orders of one customer are in several partitions: {homes}")


def _show(described: dict[str, Any]) -> None:
    console.print(described["closed"]["note"], soft_wrap=True)
    shown = table("partition", "orders", "folded into")
    for part in described["partitions"]:
        into = part["folded_into"]
        shown.add_row(str(part["partition"]), f"{part['end_offset']:,}", "" if into is None else str(into))
    console.print(shown)


def _unread(admin: Admin) -> int:
    """Orders in closed partitions that the group has not finished."""
    done = admin.committed(GROUP)
    return sum(
        max(0, end - done.get((TOPIC, partition), 0))
        for partition, end in admin.end_offsets(TOPIC).items()
        if partition >= AFTER
    )


def _delete_closed(admin: Admin, count: int) -> bool:
    """Whether they are gone. Until then what they hold is deleted."""
    places = [TopicPartition(TOPIC, partition, -1) for partition in range(AFTER, count)]
    for future in (admin.raw.delete_records(places) if places else {}).values():
        try:
            future.result(PATIENCE_SECONDS)
        except KafkaException:
            continue  # it has gone meanwhile
    return not places


def _count(address: str) -> int:
    return len(_describe(address)["partitions"])


def _describe(address: str) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(_forebay(address, "topic", "describe", TOPIC, "--json"))
    return described


def _forebay(address: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "forebay", *arguments, "-b", address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr.strip())
    return done.stdout
