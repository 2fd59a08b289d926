"""A broker that is killed again and again, with a real client that rejects everything."""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from threading import Event, Thread

from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from support.brokers.broker_process import BrokerProcess, StartBroker

MESSAGES = 300
KILLS = 4
SECONDS_MAX = 120.0


def configure(broker: BrokerProcess) -> None:
    settings = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": "10",
        "share.record.lock.duration.ms": "1000",
        "errors.deadletterqueue.topic.name": "dead",
    }
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in settings.items()]
    resource = ConfigResource(ResourceType.GROUP, "g", incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for outcome in admin.incremental_alter_configs([resource]).values():
        outcome.result()


def send_all(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(MESSAGES):
        producer.produce("jobs", f"v{n}".encode())
        producer.poll(0)
    assert producer.flush(60) == 0


def reject_some(broker: BrokerProcess, stop: Event) -> None:
    """Be a worker that rejects what it gets, until it is told to stop."""
    worker = ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 20,
            "log_level": 0,
        }
    )
    worker.subscribe(["jobs"])
    while not stop.is_set():
        for message in worker.poll(0.1) or []:
            if not message.error():
                worker.acknowledge(message, AcknowledgeType.REJECT)
        worker.commit_async()
    worker.close()


def dead_offsets(broker: BrokerProcess) -> list[int]:
    """The offsets that the dead letters name, once as many as there must be at least have come."""
    reader = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    reader.subscribe(["dead"])
    found: list[int] = []
    until = time.monotonic() + SECONDS_MAX
    quiet_until = until
    while time.monotonic() < min(until, quiet_until):
        message = reader.poll(0.2)
        if message is not None and not message.error():
            found.append(int(dict(message.headers() or [])["__dlq.errors.offset"] or ""))
            quiet_until = time.monotonic() + 2.0 if len(set(found)) == MESSAGES else until
    reader.close()
    return found


def test_every_message_is_a_dead_letter_once_over_many_deaths(start_broker: StartBroker) -> None:
    broker = start_broker("auto.create.topics.enable=true")
    random = Random(11)
    configure(broker)
    send_all(broker)
    for _ in range(KILLS):
        killed = Event()
        rejecting = Thread(target=reject_some, args=(broker, killed))
        rejecting.start()
        time.sleep(random.uniform(0.3, 1.2))
        broker.kill()
        killed.set()
        rejecting.join()
        broker.restart()
    done = Event()
    rejecting = Thread(target=reject_some, args=(broker, done))
    rejecting.start()
    try:
        found = dead_offsets(broker)
    finally:
        done.set()
        rejecting.join()
    assert Counter(found) == Counter(range(MESSAGES))
