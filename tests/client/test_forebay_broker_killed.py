"""The producers' side of the delivery modes: the broker is killed while they send."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import pytest

from forebay.client import Consumer, DeliveryFailed, Producer, TransactionAborted
from forebay.testing import Broker

TOTAL = 1500
KILL_AT = 500
RESTART_AT = 1000
PER_TRANSACTION = 50


@pytest.fixture(scope="module")
def mortal() -> Iterator[Broker]:
    with Broker(process=True) as broker:
        yield broker


def strike(broker: Broker, number: int) -> None:
    """Kill the broker under the producer's hands, and bring it back while more is queued."""
    if number == KILL_AT:
        broker.kill()
    elif number == RESTART_AT:
        broker.start()


def read(broker: Broker, topic: str, last: int) -> list[int]:
    found: list[int] = []
    with Consumer(broker.bootstrap_servers, topic, group=topic, profile="latency") as consumer:
        while not found or found[-1] != last:
            found.append(int(next(consumer).value or b""))
    return found


def test_at_most_once_never_repeats(mortal: Broker) -> None:
    with (
        contextlib.suppress(DeliveryFailed),
        Producer(mortal.bootstrap_servers, delivery="at-most-once", profile="latency") as producer,
    ):
        for number in range(TOTAL):
            producer.send("most", str(number))
            strike(mortal, number)
    with Producer(mortal.bootstrap_servers, profile="latency") as producer:
        producer.send("most", str(TOTAL))
    found = read(mortal, "most", TOTAL)
    assert max(Counter(found).values()) == 1


def test_at_least_once_never_loses_nor_reorders(mortal: Broker) -> None:
    with Producer(mortal.bootstrap_servers, profile="latency") as producer:
        for number in range(TOTAL):
            producer.send("least", str(number))
            strike(mortal, number)
    # More than promised: retries of one producer do not even repeat.
    assert read(mortal, "least", TOTAL - 1) == list(range(TOTAL))


def test_exactly_once_writes_each_transaction_once(mortal: Broker) -> None:
    struck: set[int] = set()
    with Producer(
        mortal.bootstrap_servers,
        delivery="exactly-once",
        profile="latency",
        transactional_id="one",
        settings={"reconnect.backoff.max.ms": 200},
    ) as producer:
        first = 0
        while first < TOTAL:
            with contextlib.suppress(TransactionAborted), producer.transaction():
                for number in range(first, first + PER_TRANSACTION):
                    producer.send("once", str(number))
                    if number in (325, 925) and number not in struck:
                        struck.add(number)
                        producer.raw.flush(0.01)
                        mortal.kill()
                        mortal.start()
            if producer.transactions.committed:
                first += PER_TRANSACTION
    assert read(mortal, "once", TOTAL - 1) == list(range(TOTAL))
