"""A broker with tiered storage on S3 (moto's server) is killed again and again; so is the way to the store.

Nothing that was acknowledged is lost or doubled, wherever it is, and no object is left without an owner.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from forebay.operations.remote_store import check_store
from forebay.tiers.opening import open_store
from support.brokers.broker_process import BrokerProcess
from support.brokers.tiered import TIERED, settings
from support.clients.kafka_clients import confluent_admin
from support.spark.object_store import ObjectStore, running_object_store

KILLS = int(os.environ.get("CHAOS_TIER_KILLS", "12"))
SECONDS = 120.0
TOPIC = "history"


def tier_broker(data: Path, url: str, server: ObjectStore) -> BrokerProcess:
    own = {**settings(url), "forebay.remote.delete.delay.ms": "1000"}
    given = [f"{name}={text}" for name, text in own.items()]
    return BrokerProcess(data, *given, environ=server.environment())


def produce_some(producer: Producer, start: int, count: int) -> None:
    for number in range(start, start + count):
        producer.produce(TOPIC, value=b"%d " % number + b"v" * 300, partition=0)
    assert producer.flush(SECONDS) == 0


def read_all(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < deadline:
        came = [message for message in consumer.consume(1000, timeout=1.0) if message.error() is None]
        found += [int((message.value() or b"").split()[0]) for message in came]
    consumer.close()
    return found


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_kills_of_the_broker_and_of_the_store_lose_and_double_nothing(tmp_path: Path) -> None:
    chance, sent = random.Random(7), 0
    with running_object_store() as server:
        url = server.location()
        broker = tier_broker(tmp_path / "data", url, server).start()
        try:
            configs = {**TIERED, "segment.bytes": "20000", "local.retention.bytes": "40000"}
            admin = confluent_admin(broker.bootstrap)
            admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)])[TOPIC].result(SECONDS)
            producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
            for number in range(KILLS):
                produce_some(producer, sent, 400)
                sent += 400
                if number % 3 == 2:
                    with server.shut_after(chance.randint(0, 6)):
                        produce_some(producer, sent, 400)
                        sent += 400
                        time.sleep(chance.uniform(0.0, 0.5))
                else:
                    time.sleep(chance.uniform(0.0, 0.6))
                    broker.kill()
                    broker.start()
            assert read_all(broker.bootstrap, sent) == list(range(sent))
            store = open_store(url, _options(server))
            _wait_for_no_orphans(store)
        finally:
            broker.close()


def _options(server: ObjectStore) -> dict[str, str]:
    return {
        "endpoint": server.environment()["AWS_ENDPOINT_URL"],
        "access_key_id": "test",
        "secret_access_key": "test",
        "region": "us-east-1",
    }


def _wait_for_no_orphans(store: object) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        report = check_store(store, age_min_ms=0, deep=True)  # type: ignore[arg-type]
        if not report.orphans and not report.young and report.segments >= KILLS // 2:
            assert report.problems == []
            return
        assert time.monotonic() < deadline, report
        time.sleep(0.5)
