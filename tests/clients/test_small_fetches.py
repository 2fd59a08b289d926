"""Consumers whose fetch size is below that of a message: they get one batch at a time, and each message once.

They read without a group, so that no rebalance lets them begin again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import confluent_kafka
import pytest

from forebay.client import Admin, Producer
from support.brokers.broker_process import BrokerProcess
from support.clients.kafka_clients import kafka_python
from support.waiting import Patience

MESSAGES = 30
FETCH_BYTES = 10
PARTITIONS = 3


def by_confluent(bootstrap: str, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[bytes] = []
    patience = Patience("librdkafka reads all messages")
    while len(found) < MESSAGES:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        patience.check(len(found))
    assert consumer.poll(0.5) is None
    consumer.close()
    return found


def by_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_max_bytes=FETCH_BYTES,
    )
    consumer.assign([kafka_python.TopicPartition(topic, index) for index in range(PARTITIONS)])
    found: list[bytes] = []
    patience = Patience("kafka-python reads all messages")
    while len(found) < MESSAGES:
        for messages in consumer.poll(200).values():
            found += [message.value for message in messages]
        patience.check(len(found))
    assert not consumer.poll(500)
    consumer.close()
    return found


def by_aiokafka(bootstrap: str, topic: str) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
            fetch_max_bytes=FETCH_BYTES,
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, index) for index in range(PARTITIONS)])
        found: list[bytes] = []
        patience = Patience("aiokafka reads all messages")
        while len(found) < MESSAGES:
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                found += [message.value for message in messages]
            patience.check(len(found))
        assert not await consumer.getmany(timeout_ms=500)
        await consumer.stop()
        return found

    return asyncio.run(read())


@pytest.mark.parametrize("read", [by_confluent, by_kafka_python, by_aiokafka])
def test_each_message_comes_once_however_small_a_fetch_is(
    broker: BrokerProcess, topic: str, read: Callable[[str, str], list[bytes]]
) -> None:
    sent = [b"%d" % number + b"x" * 1000 for number in range(MESSAGES)]
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topic(topic, partitions=PARTITIONS)
        for number, value in enumerate(sent):
            producer.send(topic, value, partition=number % PARTITIONS)
            producer.flush()
    assert sorted(read(broker.bootstrap, topic)) == sorted(sent)
