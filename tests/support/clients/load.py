"""A producer under load in a thread of its own, with a ledger of what was acknowledged and where.

It knows nothing of crashes: it goes on producing while the broker is killed and comes back, as an
application would.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from confluent_kafka import Producer, TopicPartition

from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_consumer

PENDING_MAX = 2_000


class Load:
    """Numbered messages, round robin over the partitions, until the block is left.

    As fast as it can, or with a pause of `pace_s` after each, which leaves the machine to the brokers.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        idempotent: bool,
        acks: str,
        pace_s: float = 0.0,
    ) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """Partition and offset of each message that the broker has promised to keep."""
        self.sent: list[list[bytes]] = [[] for _ in range(partitions)]
        self.failed: list[Any] = []
        self._topic = topic
        self._pace_s = pace_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": idempotent,
                "acks": acks,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for_more(self, count: int) -> None:
        """Until so many more messages are acknowledged than now."""
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"only {len(self.acknowledged)} of {wanted} acknowledged"
            time.sleep(0.002)

    def _run(self) -> None:
        producer, number = self._producer, 0
        while not self._stopping.is_set():
            if len(producer) >= PENDING_MAX:
                producer.poll(0.01)
                continue
            partition = number % len(self.sent)
            value = b"%d %s" % (number, b"." * (number % 200))
            self.sent[partition].append(value)
            producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            producer.poll(0)
            if self._pace_s:
                time.sleep(self._pace_s)
            number += 1
        if producer.flush(DEADLINE_SECONDS):
            self.failed.append("messages are left in the producer")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged[message.partition(), message.offset()] = message.value()


def read_all(bootstrap: str, topic: str, partition: int) -> dict[int, bytes]:
    """Everything from the first offset to the high watermark, by offset."""
    consumer = confluent_consumer(bootstrap, check_crcs=True)
    found: dict[int, bytes] = {}
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), DEADLINE_SECONDS)
        consumer.assign([TopicPartition(topic, partition, low)])
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(found) < high - low:
            assert time.monotonic() < deadline, f"{len(found)} of {high - low} messages read"
            for message in consumer.consume(high - low - len(found), 0.5):
                assert message.error() is None, message.error()
                found[message.offset() or 0] = message.value() or b""
    finally:
        consumer.close()
    assert list(found) == list(range(low, high)), "offsets are not contiguous"
    return found
