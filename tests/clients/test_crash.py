"""A broker that is killed, stopped and started again while producers are at work.

What was acknowledged is there afterwards, at the offset that was acknowledged; offsets have no gaps; and an
idempotent producer's messages are there once, in order.
"""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ConfigResource

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Message,
    confluent_admin,
    confluent_consumer,
    create_topic,
)
from support.clients.load import Load, read_all

PARTITIONS = 3
ROUNDS = 3


def check(broker: BrokerProcess, topic: str, load: Load, *, idempotent: bool) -> None:
    assert not load.failed
    kept = {
        (partition, offset): value
        for partition in range(PARTITIONS)
        for offset, value in read_all(broker.bootstrap, topic, partition).items()
    }
    lost = {place: value for place, value in load.acknowledged.items() if kept.get(place) != value}
    assert not lost
    for partition, sent in enumerate(load.sent):
        values = [value for (of, _), value in kept.items() if of == partition]
        if idempotent:
            assert values == sent
        else:
            assert set(values) == set(sent)


@pytest.mark.parametrize(
    ("idempotent", "acks", "settings"),
    [
        (False, "1", ()),
        (False, "all", ()),
        (True, "all", ()),
        (True, "all", ("forebay.flush.policy=interval",)),
        (True, "all", ("log.segment.bytes=20000",)),
    ],
    ids=["acks-1", "acks-all", "idempotent", "idempotent-interval", "idempotent-small-segments"],
)
def test_nothing_acknowledged_is_lost_by_kill_9(
    start_broker: StartBroker, topic: str, idempotent: bool, acks: str, settings: tuple[str, ...]
) -> None:
    broker = start_broker(*settings)
    create_topic(broker.bootstrap, topic, PARTITIONS)
    chance = random.Random(f"{idempotent} {acks} {settings}")
    load = Load(broker.bootstrap, topic, partitions=PARTITIONS, idempotent=idempotent, acks=acks)
    with load:
        for _ in range(ROUNDS):
            load.wait_for_more(chance.randrange(1, 1_500))
            broker.kill()
            broker.restart()
        load.wait_for_more(100)
    check(broker, topic, load, idempotent=idempotent)
    assert "Traceback" not in broker.log()


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_sigterm_under_load_is_clean(fresh_broker: BrokerProcess, topic: str, idempotent: bool) -> None:
    broker = fresh_broker
    create_topic(broker.bootstrap, topic, PARTITIONS)
    load = Load(broker.bootstrap, topic, partitions=PARTITIONS, idempotent=idempotent, acks="all")
    with load:
        for _ in range(2):
            load.wait_for_more(500)
            assert broker.stop() == 0
            broker.restart()
        load.wait_for_more(100)
    check(broker, topic, load, idempotent=idempotent)
    assert "Traceback" not in broker.log()
    assert "ERROR" not in broker.log()


def test_a_kill_while_topics_come_and_go(fresh_broker: BrokerProcess, topic: str) -> None:
    """Topics that were reported as made are there, those reported as deleted are not."""
    broker = fresh_broker
    for n in range(4):
        create_topic(broker.bootstrap, f"{topic}-{n}", 2, retention_ms=f"{n}0000")
        CLIENTS[0].produce(broker.bootstrap, f"{topic}-{n}", [Message(b"%d" % n, partition=1)])
        admin = confluent_admin(broker.bootstrap)
        if n % 2:
            admin.delete_topics([f"{topic}-{n}"])[f"{topic}-{n}"].result(DEADLINE_SECONDS)
        broker.kill()
        broker.restart()
    names = confluent_admin(broker.bootstrap).list_topics(timeout=DEADLINE_SECONDS).topics
    assert set(names) == {f"{topic}-0", f"{topic}-2"}
    assert read_all(broker.bootstrap, f"{topic}-2", 1) == {0: b"2"}
    # A name that was used before begins with nothing of its past.
    create_topic(broker.bootstrap, f"{topic}-1", 2)
    assert read_all(broker.bootstrap, f"{topic}-1", 1) == {}


def test_a_clean_restart_keeps_everything(fresh_broker: BrokerProcess, topic: str) -> None:
    broker = fresh_broker
    create_topic(broker.bootstrap, topic, 2, retention_ms="123456", segment_bytes="10000")
    messages = [Message(b"%d" % n + b"." * 100, b"k", partition=n % 2) for n in range(1_000)]
    CLIENTS[0].produce(broker.bootstrap, topic, messages, codec="lz4")
    admin = confluent_admin(broker.bootstrap)
    start = TopicPartition(topic, 1, 100)
    admin.delete_records([start])[start].result(DEADLINE_SECONDS)
    before = state(broker, topic)
    for _ in range(2):
        assert broker.stop() == 0
        broker.restart()
        assert state(broker, topic) == before
        everything = read_all(broker.bootstrap, topic, 0)
        assert list(everything.values()) == [message.value for message in messages if not message.partition]
        assert min(read_all(broker.bootstrap, topic, 1)) == 100


def state(broker: BrokerProcess, topic: str) -> list[object]:
    """What must outlast a restart: identities, settings, the ends of the logs."""
    admin = confluent_admin(broker.bootstrap)
    cluster = admin.list_topics(timeout=DEADLINE_SECONDS)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(DEADLINE_SECONDS)
    return [
        cluster.cluster_id,
        sorted(cluster.topics[topic].partitions),
        {name: (entry.value, entry.source) for name, entry in entries.items()},
        watermarks(broker, topic, 0),
        watermarks(broker, topic, 1),
    ]


def watermarks(broker: BrokerProcess, topic: str, partition: int) -> tuple[int, int]:
    consumer = confluent_consumer(broker.bootstrap)
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_SECONDS)
        assert found is not None
        return found
    finally:
        consumer.close()


def test_offsets_go_on_after_a_restart(fresh_broker: BrokerProcess, topic: str) -> None:
    broker = fresh_broker
    create_topic(broker.bootstrap, topic)
    for start, client in zip(range(0, 40, 10), CLIENTS[:3] + CLIENTS[:1], strict=True):
        values = [b"%d" % n for n in range(start, start + 10)]
        client.produce(broker.bootstrap, topic, [Message(value) for value in values])
        (broker.kill if start % 20 else broker.stop)()
        broker.restart()
    assert read_all(broker.bootstrap, topic, 0) == {n: b"%d" % n for n in range(40)}


@pytest.mark.parametrize(
    ("setting", "value", "kept"),
    [("retention.bytes", "30000", range(200, 400)), ("retention.ms", "60000", range(1))],
    ids=["by-size", "by-time"],
)
def test_retention_works_over_a_restart(
    start_broker: StartBroker, topic: str, setting: str, value: str, kept: range
) -> None:
    broker = start_broker("log.retention.check.interval.ms=3600000")
    create_topic(broker.bootstrap, topic, segment_bytes="10000", **{setting.replace(".", "_"): value})
    # Older than retention.ms of the topic, and younger than what the broker itself would keep.
    old_ms = int((time.time() - 7_200) * 1000)
    for _ in range(50):
        CLIENTS[0].produce(broker.bootstrap, topic, [Message(b"." * 100, timestamp=old_ms)] * 20)
    assert watermarks(broker, topic, 0) == (0, 1_000)
    broker.restart("log.retention.check.interval.ms=50")
    low = wait_for_deletion(broker, topic)
    assert 1_000 - low in kept
    broker.restart("log.retention.check.interval.ms=3600000")
    assert watermarks(broker, topic, 0) == (low, 1_000)
    assert len(read_all(broker.bootstrap, topic, 0)) == 1_000 - low
    broker.kill()
    broker.restart()
    assert watermarks(broker, topic, 0) == (low, 1_000)


def wait_for_deletion(broker: BrokerProcess, topic: str) -> int:
    """The first offset that is left once retention has been at work."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (low := watermarks(broker, topic, 0)[0]):
        assert time.monotonic() < deadline, "retention has deleted nothing"
        time.sleep(0.05)
    return low
