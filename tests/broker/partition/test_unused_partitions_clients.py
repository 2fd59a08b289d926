"""Clients of others on partitions that nobody has used yet: they notice nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.brokers.broker_process import running_broker
from support.waiting import Patience

TOPIC, MANY = "wide", 60
FEW = "forebay.open.before.ready.max=10"


def produced(bootstrap: str, transactional: bool) -> None:
    """One message to each partition."""
    errors: list[object] = []
    settings: dict[str, object] = {"bootstrap.servers": bootstrap, "enable.idempotence": True}
    if transactional:
        settings["transactional.id"] = "t"
    producer = Producer(settings)
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    for index in range(MANY):
        producer.produce(
            TOPIC,
            b"%d" % index,
            partition=index,
            on_delivery=lambda error, _: errors.append(error) if error is not None else None,
        )
    if transactional:
        producer.commit_transaction()
    assert producer.flush(60) == 0
    assert not errors


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_what_a_producer_writes_to_each(
    tmp_path: Path, transactional: bool, protocol: str
) -> None:
    with running_broker(tmp_path / "data", FEW) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        admin.create_topics([NewTopic(TOPIC, MANY, 1)])[TOPIC].result(60)
        settings = {"bootstrap.servers": process.bootstrap, "group.id": "g", "group.protocol": protocol}
        reader = Consumer({**settings, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        try:
            reader.subscribe([TOPIC])
            produced(process.bootstrap, transactional)
            found: set[bytes | None] = set()
            patience = Patience("all are read")
            while len(found) < MANY:
                patience.check(None)
                message = reader.poll(0.2)
                if message is not None:
                    assert message.error() is None, message.error()
                    found.add(message.value())
            reader.commit(asynchronous=False)
            committed = reader.committed([TopicPartition(TOPIC, index) for index in range(MANY)], 60)
            assert all(each.offset >= 1 for each in committed)
        finally:
            reader.close()
