"""What clients are told when something is wrong: the right error, at once, and nothing stored."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Client,
    Message,
    confluent_admin,
    confluent_consumer,
    create_topic,
    each_client,
    kafka_python,
    need,
)

NOT_THERE = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)
"""A client that knows better does not ask the broker."""


def produce(bootstrap: str, topic: str, value: bytes | None, **settings: Any) -> KafkaError | None:
    """The error of one message, None when it was taken."""
    outcome: list[KafkaError | None] = []
    arguments = {name: settings.pop(name) for name in ("key", "partition", "timestamp") if name in settings}
    dotted = {name.replace("_", "."): setting for name, setting in settings.items()}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.max.bytes": 20_000_000, "log_level": 0, **dotted}
    )
    try:
        producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error), **arguments)
    except KafkaException as failed:  # what is wrong was known before the message was queued
        outcome.append(failed.args[0])
    assert producer.flush(DEADLINE_SECONDS) == 0
    return outcome[0]


def code_of(error: KafkaError | None) -> int:
    assert error is not None, "it worked"
    return error.code()


def end_offset(broker: BrokerProcess, topic: str) -> int:
    consumer = confluent_consumer(broker.bootstrap)
    try:
        marks = consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_SECONDS)
        assert marks is not None
        return marks[1]
    finally:
        consumer.close()


# -- messages that are not taken ---------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_a_message_too_large(broker: BrokerProcess, topic: str, acks: int) -> None:
    create_topic(broker.bootstrap, topic)
    error = produce(broker.bootstrap, topic, b"." * 1_100_000, acks=acks)
    assert code_of(error) == KafkaError.MSG_SIZE_TOO_LARGE
    assert end_offset(broker, topic) == 0
    assert produce(broker.bootstrap, topic, b"." * 1_000_000, acks=acks) is None


def test_kafka_python_hears_of_a_message_too_large(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    producer = kafka_python.KafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=20_000_000)
    try:
        with pytest.raises(kafka_python.errors.MessageSizeTooLargeError):
            producer.send(topic, b"." * 1_100_000).get(DEADLINE_SECONDS)
    finally:
        producer.close()
    assert end_offset(broker, topic) == 0


async def test_aiokafka_hears_of_a_message_too_large(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic)
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap, max_request_size=20_000_000)
    async with producer:
        with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
            await asyncio.wait_for(producer.send_and_wait(topic, b"." * 1_100_000), DEADLINE_SECONDS)
        # The same connection goes on to be good for others.
        assert (await producer.send_and_wait(topic, b"small")).offset == 0


def test_a_time_that_cannot_be(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, message_timestamp_before_max_ms="60000")
    now_ms = int(time.time() * 1000)
    for timestamp in (now_ms - 3_600_000, now_ms + 7_200_000):
        error = produce(broker.bootstrap, topic, b"when?", timestamp=timestamp)
        assert code_of(error) == KafkaError.INVALID_TIMESTAMP
    assert produce(broker.bootstrap, topic, b"now", timestamp=now_ms) is None
    assert end_offset(broker, topic) == 1


def test_a_compacted_topic_needs_keys(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, cleanup_policy="compact")
    assert code_of(produce(broker.bootstrap, topic, b"no key")) == KafkaError.INVALID_RECORD
    assert produce(broker.bootstrap, topic, b"with a key", key=b"k") is None
    assert end_offset(broker, topic) == 1


def test_unacknowledged_messages_that_are_refused_harm_no_others(broker: BrokerProcess, topic: str) -> None:
    """With acks=0 nobody is told; the messages that follow on a new connection are taken."""
    create_topic(broker.bootstrap, topic)
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "acks": 0, "message.max.bytes": 20_000_000, "log_level": 0}
    )
    producer.produce(topic, b"." * 1_100_000)
    assert producer.flush(DEADLINE_SECONDS) == 0
    CLIENTS[0].produce(broker.bootstrap, topic, [Message(b"small")], acks="1")
    (found,) = CLIENTS[0].consume(broker.bootstrap, topic, 1)
    assert (found.offset, found.message.value) == (0, b"small")


# -- topics that are not there -----------------------------------------------------------------------------


@each_client
def test_a_topic_is_made_when_it_is_used(start_broker: StartBroker, topic: str, client: Client) -> None:
    need(client)
    broker = start_broker("num.partitions=3")
    client.produce(broker.bootstrap, topic, [Message(b"first", partition=2)])
    (found,) = client.consume(broker.bootstrap, topic, 1, partition=2)
    assert found.message.value == b"first"
    topics = confluent_admin(broker.bootstrap).list_topics(timeout=DEADLINE_SECONDS).topics
    assert len(topics[topic].partitions) == 3


def test_no_topic_is_made_where_that_is_forbidden(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker("auto.create.topics.enable=false")
    error = produce(broker.bootstrap, topic, b"lost", topic_metadata_propagation_max_ms=100)
    assert code_of(error) in NOT_THERE
    producer = kafka_python.KafkaProducer(bootstrap_servers=broker.bootstrap, max_block_ms=500)
    try:
        with pytest.raises(kafka_python.errors.KafkaTimeoutError):
            producer.send(topic, b"lost").get(DEADLINE_SECONDS)
    finally:
        producer.close()
    assert topic not in confluent_admin(broker.bootstrap).list_topics(timeout=DEADLINE_SECONDS).topics
    create_topic(broker.bootstrap, topic)
    assert produce(broker.bootstrap, topic, b"kept") is None


def test_reading_a_topic_does_not_make_it(broker: BrokerProcess, topic: str) -> None:
    """Consumers of this library do not ask for it, though the broker would."""
    consumer = confluent_consumer(broker.bootstrap)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(0.5)
        assert message is None or message.error() is not None
        with pytest.raises(KafkaException) as failed:
            consumer.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_SECONDS)
        assert failed.value.args[0].code() in NOT_THERE
    finally:
        consumer.close()
    assert topic not in confluent_admin(broker.bootstrap).list_topics(timeout=DEADLINE_SECONDS).topics


def test_a_partition_that_is_not_there(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 2)
    error = produce(broker.bootstrap, topic, b"lost", partition=2)
    assert code_of(error) in NOT_THERE
    assert end_offset(broker, topic) == 0


@pytest.mark.parametrize("name", ["two words", "x" * 250, ".."])
def test_a_name_that_no_topic_can_have(broker: BrokerProcess, name: str) -> None:
    error = produce(broker.bootstrap, name, b"lost", topic_metadata_propagation_max_ms=100)
    assert code_of(error) in (KafkaError.TOPIC_EXCEPTION, KafkaError._UNKNOWN_TOPIC)
    assert name not in confluent_admin(broker.bootstrap).list_topics(timeout=DEADLINE_SECONDS).topics


def test_a_consumer_goes_on_with_a_topic_made_anew(broker: BrokerProcess, topic: str) -> None:
    """It fetches by the topic's id: the old one is refused, and it finds the new one by itself."""
    admin = confluent_admin(broker.bootstrap)
    consumer = confluent_consumer(
        broker.bootstrap, auto_offset_reset="earliest", topic_metadata_refresh_interval_ms=100
    )
    try:
        # Fewer each time, so that the consumer stands behind the end of its new topic.
        for count in (3, 1):
            create_topic(broker.bootstrap, topic)
            CLIENTS[0].produce(broker.bootstrap, topic, [Message(b"%d" % count)] * count)
            if not consumer.assignment():
                consumer.assign([TopicPartition(topic, 0, 0)])
            messages = consumer.consume(count, DEADLINE_SECONDS)
            assert [(m.error(), m.value(), m.offset()) for m in messages] == [
                (None, b"%d" % count, offset) for offset in range(count)
            ]
            admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)
    finally:
        consumer.close()
