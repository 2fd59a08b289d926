"""Idempotent producers whose connections are cut at random: nothing lost, nothing twice, the order kept."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Producer

from support.brokers.broker_process import BrokerProcess, running_broker
from support.clients.kafka_clients import CLIENTS, DEADLINE_SECONDS, create_topic, kafka_python
from support.faults.cutting_proxy import CuttingProxy

PARTITIONS = 3
PER_PARTITION = 600
CUTS = 25

Produce = Callable[[str, str], None]


def values(partition: int) -> list[bytes]:
    return [b"%d/%d " % (partition, n) + b"." * (n % 400) for n in range(PER_PARTITION)]


def numbered() -> Iterator[tuple[int, bytes]]:
    """The messages of all partitions, each partition's in order."""
    for row in zip(*map(values, range(PARTITIONS)), strict=True):
        yield from enumerate(row)


def with_confluent(bootstrap: str, topic: str) -> None:
    failed: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 10,
            "linger.ms": 1,
            "retry.backoff.ms": 5,
            "retry.backoff.max.ms": 20,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 20,
            "log_level": 0,
        }
    )
    for partition, value in numbered():
        producer.produce(
            topic,
            value,
            partition=partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        producer.poll(0)
    assert producer.flush(2 * DEADLINE_SECONDS) == 0
    assert not failed


def with_kafka_python(bootstrap: str, topic: str) -> None:
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        batch_size=2_000,
        linger_ms=1,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=20,
    )
    try:
        futures = [producer.send(topic, value, partition=partition) for partition, value in numbered()]
        for future in futures:
            future.get(2 * DEADLINE_SECONDS)
    finally:
        producer.close()


def with_aiokafka(bootstrap: str, topic: str) -> None:
    async def produce() -> None:
        producer = await started_aiokafka(bootstrap)
        try:
            futures = [
                await producer.send(topic, value, partition=partition) for partition, value in numbered()
            ]
            await asyncio.wait_for(asyncio.gather(*futures), 2 * DEADLINE_SECONDS)
        finally:
            await producer.stop()

    asyncio.run(produce())


async def started_aiokafka(bootstrap: str) -> aiokafka.AIOKafkaProducer:
    """It does not try again when its very first connection is cut, so this does, as a program would."""
    for _ in range(CUTS):
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            max_batch_size=2_000,
            linger_ms=1,
            retry_backoff_ms=5,
        )
        try:
            await producer.start()
        except KafkaConnectionError:
            await producer.stop()
        else:
            return producer
    raise AssertionError("not one connection lasted long enough to begin")


@contextlib.contextmanager
def behind_a_proxy(tmp_path: Path, seed: int) -> Iterator[tuple[BrokerProcess, CuttingProxy]]:
    """A broker that tells its clients to come by the proxy."""
    with CuttingProxy(seed=seed, cuts=CUTS, bytes_min=100, bytes_max=12_000) as proxy:
        advertised = f"advertised.listeners=PLAINTEXT://{proxy.address}"
        with running_broker(tmp_path / "data", advertised) as broker:
            proxy.target = ("127.0.0.1", broker.port)
            yield broker, proxy


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("produce", [with_confluent, with_kafka_python, with_aiokafka])
def test_nothing_is_lost_or_doubled(tmp_path: Path, topic: str, produce: Produce, seed: int) -> None:
    with behind_a_proxy(tmp_path, seed) as (broker, proxy):
        create_topic(proxy.address, topic, PARTITIONS)
        proxy.cutting = True
        produce(proxy.address, topic)
        # The messages are more bytes than so many connections could carry.
        assert proxy.cuts_done == CUTS
        for partition in range(PARTITIONS):
            received = CLIENTS[0].consume(proxy.address, topic, PER_PARTITION, partition=partition)
            assert [found.message.value for found in received] == values(partition)
            assert [found.offset for found in received] == list(range(PER_PARTITION))
        assert "Traceback" not in broker.log()
