"""A single broker whose machine loses power: what was not on disk is gone, and others get the offsets.

It leads on in new leader epochs, so that a consumer that has read what is lost notices, and reads what came
in its place.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_consumer, create_topic, know

MESSAGES = 100


def lose_power(broker: BrokerProcess, topic: str) -> None:
    """End it, cut its log in half, and let the data directory be from another boot of the machine."""
    broker.kill()
    data = broker.data
    (segment,) = (data / f"{topic}-0").glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)
    (data / "boot-id").write_text("the boot before")


def produce(bootstrap: str, topic: str, word: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, f"{word} {number}".encode(), partition=0)
    assert producer.flush(DEADLINE_SECONDS) == 0


def read_until(consumer: Consumer, last: bytes) -> list[bytes]:
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while last not in values and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    return values


@pytest.fixture
def unsynced_broker(start_broker: StartBroker) -> BrokerProcess:
    return start_broker("forebay.flush.policy=interval", "log.flush.interval.ms=600000")


def test_a_consumer_reads_what_came_in_place_of_what_was_lost(
    unsynced_broker: BrokerProcess, topic: str
) -> None:
    broker = unsynced_broker
    create_topic(broker.bootstrap, topic)
    produce(broker.bootstrap, topic, "before", MESSAGES)
    consumer = confluent_consumer(
        broker.bootstrap, **{"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    try:
        know(consumer, [topic])
        consumer.subscribe([topic])
        assert len(read_until(consumer, f"before {MESSAGES - 1}".encode())) == MESSAGES
        lose_power(broker, topic)
        broker.restart()
        produce(broker.bootstrap, topic, "after", MESSAGES)
        values = read_until(consumer, f"after {MESSAGES - 1}".encode())
    finally:
        consumer.close()
    after = [value for value in values if value.startswith(b"after")]
    assert after == [f"after {number}".encode() for number in range(MESSAGES)]
    assert "leading in new leader epochs" in broker.log()
