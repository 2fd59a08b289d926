"""The views chapter: a topic seen through a query, the same stored in a topic, and kill -9 meanwhile."""

from __future__ import annotations

import json
import random
import signal
import tempfile
from pathlib import Path

from demo_stage import Broker, Facts, Failed, console, step, table, until, waiting
from demo_worker import QUIET
from forebay.client import Admin, Consumer, Message, Producer

ORDERS, SEEN, STORED = "orders", "big-eu-orders", "big-eu-orders-stored"
WHERE = "headers['region'] = 'eu' AND value.amount > 900"
SELECT = "value.id, value.amount"
COUNT, SHORT_COUNT = 20_000, 4_000
PARTITIONS = 2


def play(short: bool) -> Facts:
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as directory:
        broker = Broker(Path(directory) / "data")
        try:
            started = broker.start()
            step(f"started a broker in {started:.2f} s on {broker.address}")
            return _play(broker, SHORT_COUNT if short else COUNT)
        finally:
            broker.end(signal.SIGKILL)


def _play(broker: Broker, count: int) -> Facts:
    admin = Admin(broker.address, settings=QUIET)
    admin.create_topic(ORDERS, partitions=PARTITIONS)
    admin.create_view(SEEN, source=ORDERS, where=WHERE, select=SELECT)
    step(f"created the view {SEEN} of {ORDERS}, where {WHERE}")
    admin.create_view(STORED, source=ORDERS, where=WHERE, select=SELECT, materialize=True)
    step(f"created {STORED} of the same query with --materialize: a topic that the broker fills")
    wanted = _send(broker.address, range(count // 2))
    broker.end(signal.SIGKILL)
    started = broker.start()
    step(f"killed the broker (kill -9) while it fills, and started it again in {started:.2f} s")
    wanted += _send(broker.address, range(count // 2, count))
    seen = _read(broker.address, SEEN, len(wanted))
    stored = _read(broker.address, STORED, len(wanted))
    for topic, found in ((SEEN, seen), (STORED, stored)):
        ids = sorted(json.loads(message.value or b"")["id"] for message in found)
        if ids != wanted:
            raise Failed(f"{topic} has {len(ids)} orders, not the {len(wanted)} that match")
    if _places(seen) != _places(stored):
        raise Failed("the view and the topic that is filled have their messages in different places")
    _show(seen[:3])
    step("both show each order that matches, at the offsets it has in the topic: none lost, none doubled")
    whole, part = _bytes(count), sum(len(message.value or b"") for message in seen)
    return [
        (f"{count:,} orders, {len(wanted):,} of which match", f"{len(seen):,} read from the view"),
        ("bytes of values over the network", f"{part:,} instead of about {whole:,}"),
        ("kill -9 while a topic is filled", f"started again in {started:.2f} s, filled exactly once"),
    ]


def _order(number: int) -> tuple[dict[str, object], str]:
    chance = random.Random(number)
    order = {"id": number, "amount": chance.randrange(1_000), "customer": f"customer {chance.random()}"}
    return order, chance.choice(("eu", "us", "asia"))


def _matches(number: int) -> bool:
    order, region = _order(number)
    amount = order["amount"]
    assert isinstance(amount, int)
    return region == "eu" and amount > 900


def _send(address: str, numbers: range) -> list[int]:
    """The numbers of the orders that match."""
    with Producer(address, settings=QUIET) as producer:
        for number in numbers:
            order, region = _order(number)
            producer.send(ORDERS, json.dumps(order), key=f"order {number}", headers={"region": region})
    step(f"sent {len(numbers):,} orders to {ORDERS}")
    return [number for number in numbers if _matches(number)]


def _read(address: str, topic: str, count: int) -> list[Message]:
    """What a group of one reads of a topic, as far as it was expected; and a little longer."""
    found: list[Message] = []
    with Consumer(address, topic, group=f"readers of {topic}", settings=QUIET) as consumer:

        def look() -> bool:
            found.extend(consumer.take(1_000, 0.2))
            return len(found) >= count

        with waiting(f"reading {topic}"):
            until(look, f"{topic} shows {count} orders")
        found.extend(consumer.take(1_000, 0.5))
    return found


def _places(messages: list[Message]) -> dict[tuple[int, int], bytes | None]:
    return {(message.partition, message.offset): message.value for message in messages}


def _show(messages: list[Message]) -> None:
    shown = table("partition", "offset", "value", words=3)
    for message in messages:
        shown.add_row(str(message.partition), str(message.offset), (message.value or b"").decode())
    console.print(shown)


def _bytes(count: int) -> int:
    return sum(len(json.dumps(_order(number)[0])) for number in range(count))
