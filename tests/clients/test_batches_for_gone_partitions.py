"""Producers that lower their count while they hold batches for partitions which are gone: none is stuck.

kafka-python and aiokafka take the count from each metadata answer, and a batch keeps its partition. The first
answer after the partitions are gone does not show them. A batch would then wait until it has expired.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import pytest

from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.replicated import until
from support.clients.kafka_clients import DEADLINE_SECONDS, kafka_python
from support.clients.wire_client import WireClient, create, read_all

BEFORE, AFTER = 6, 2
EVERY_MS = 200
"""How often the producers ask for metadata."""
NEVER_MS = 3_600_000
LINGER_MS = 3_000
"""aiokafka sends no earlier, whatever it is told."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    settings = {"forebay.fold.grace.ms": "0", "log.retention.check.interval.ms": "50"}
    with local_broker(tmp_path / "data", settings) as broker:
        yield broker


def fold(client: WireClient, topic: str) -> None:
    """Close the last partitions, which are empty, and wait until they are gone."""
    wanted = CreatePartitionsTopic(name=topic, count=AFTER, assignments=None)
    (done,) = client.call(CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000), 3).results
    assert done.error_code == 0, done.error_message
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    until(lambda: len(client.call(asked, 12).topics[0].partitions) == AFTER, "the closed partitions go")


def check_stored(client: WireClient, topic: str) -> None:
    """Each message is there once, in the partition that takes those for the one that it was sent to."""
    found = [[value for _, value in read_all(client, topic, index)] for index in range(AFTER)]
    assert [sorted(map(bytes, filter(None, values))) for values in found] == [
        [b"%d" % index for index in range(first, BEFORE, AFTER)] for first in range(AFTER)
    ]


def test_kafka_python(broker: LocalBroker, topic: str) -> None:
    with WireClient(broker.bootstrap) as client:
        create(client, topic, BEFORE)
        producer = kafka_python.KafkaProducer(
            bootstrap_servers=broker.bootstrap,
            enable_idempotence=False,
            linger_ms=NEVER_MS,
            delivery_timeout_ms=2 * NEVER_MS,
            metadata_max_age_ms=EVERY_MS,
        )
        try:
            sent = [producer.send(topic, b"%d" % index, partition=index) for index in range(BEFORE)]
            fold(client, topic)
            until(lambda: len(producer.partitions_for(topic)) == AFTER, "the producer learns the new count")
            producer.flush(timeout=DEADLINE_SECONDS)
            assert [future.get(0).partition for future in sent] == list(range(BEFORE))
        finally:
            producer.close(timeout=0)
        check_stored(client, topic)


def test_aiokafka(broker: LocalBroker, topic: str) -> None:
    async def produce(client: WireClient) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap,
            linger_ms=LINGER_MS,
            request_timeout_ms=int(DEADLINE_SECONDS * 1000),
            metadata_max_age_ms=EVERY_MS,
        )
        await producer.start()
        try:
            sent = [await producer.send(topic, b"%d" % index, partition=index) for index in range(BEFORE)]
            await asyncio.to_thread(fold, client, topic)
            async with asyncio.timeout(DEADLINE_SECONDS):
                # They leave after their time, by when the producer has learned the new count.
                assert [(await future).partition for future in sent] == list(range(BEFORE))
        finally:
            await producer.stop()

    with WireClient(broker.bootstrap) as client:
        create(client, topic, BEFORE)
        asyncio.run(produce(client))
        check_stored(client, topic)
