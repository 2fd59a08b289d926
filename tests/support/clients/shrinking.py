"""What tests share in which real clients use a topic while the number of its partitions changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from support.clients.kafka_clients import DEADLINE_SECONDS, RECONNECTING, confluent_consumer


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


def stored(bootstrap: str, topic: str, partitions: range) -> dict[int, list[bytes]]:
    """The committed messages of each partition, in their order."""
    found: dict[int, list[bytes]] = {index: [] for index in partitions}
    consumer = confluent_consumer(
        bootstrap, enable_partition_eof=True, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    with closing(consumer):
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        left = set(partitions)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while left:
            assert time.monotonic() < deadline, f"the end of {left} was not reached"
            message: Any = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is None:
                found[message.partition()].append(message.value())
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    return found


class GroupReader:
    """A member of a group that reads all the time."""

    def __init__(self, bootstrap: str, topic: str, group: str, protocol: str) -> None:
        self.values: list[bytes] = []
        settings = {"session.timeout.ms": 30_000} if protocol == "classic" else {}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
                **settings,
                **RECONNECTING,
            }
        )
        self._consumer.subscribe([topic])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            message: Any = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.values.append(message.value())

    def close(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        self._consumer.close()
