"""The members of group tests commit what they have read, also when a commit fails and nothing comes any more.

A run of aiokafka members once ended with 99,676 of 100,000 offsets committed: the last commit of the last
member met a rebalance, and the member left without another try.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.errors import CommitFailedError
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from support.brokers.broker_process import BrokerProcess
from support.clients import group_clients
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Message,
    confluent_consumer,
    create_topic,
    kafka_python,
)

COUNT = 20


class Parent:
    """What the test's process does for a member: takes what it has read, and closes its standard input."""

    def __init__(self) -> None:
        self.read = 0

    def tell(self, read: Any) -> None:
        self.read += len(list(read))

    def told_to_leave(self) -> bool:
        return self.read >= COUNT


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first commit that a client makes is refused, as in a rebalance."""
    refused: list[str] = []

    def refuse(name: str, error: Exception) -> None:
        if not refused:
            refused.append(name)
            raise error

    class Confluent(confluent_kafka.Consumer):
        def commit(self, *arguments: Any, **options: Any) -> Any:
            refuse("confluent", KafkaException(KafkaError(KafkaError.REBALANCE_IN_PROGRESS)))
            return super().commit(*arguments, **options)

    class Python(kafka_python.KafkaConsumer):  # type: ignore[misc]
        def commit(self, *arguments: Any, **options: Any) -> Any:
            refuse("kafka-python", kafka_python.errors.CommitFailedError())
            return super().commit(*arguments, **options)

    class Aio(aiokafka.AIOKafkaConsumer):  # type: ignore[misc]
        async def commit(self, *arguments: Any, **options: Any) -> Any:
            await asyncio.sleep(0)
            refuse("aiokafka", CommitFailedError())
            return await super().commit(*arguments, **options)

    monkeypatch.setattr(confluent_kafka, "Consumer", Confluent)
    monkeypatch.setattr(kafka_python, "KafkaConsumer", Python)
    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", Aio)
    return refused


@pytest.mark.parametrize("client", group_clients.MEMBERS)
def test_a_member_whose_last_commit_is_refused_commits_again_before_it_leaves(
    broker: BrokerProcess, topic: str, client: str, refusals: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(broker.bootstrap, topic)
    CLIENTS[0].produce(broker.bootstrap, topic, [Message(b"x")] * COUNT)
    parent = Parent()
    monkeypatch.setattr(group_clients, "tell", parent.tell)
    monkeypatch.setattr(group_clients, "told_to_leave", parent.told_to_leave)
    group_clients.RUN[client](broker.bootstrap, topic, topic, {})
    assert refusals == [client]
    assert parent.read == COUNT
    consumer = confluent_consumer(broker.bootstrap, group_id=topic)
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], DEADLINE_SECONDS)
    finally:
        consumer.close()
    assert place.offset == COUNT
