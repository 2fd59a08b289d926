"""A transactional producer that never hears what became of its batch, and gives its transaction up.

librdkafka then numbers the next transaction's batches as if the lost one had not been sent: in the same
epoch, with the same sequences. Whatever the broker makes of it, what is acknowledged and committed must be
there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from support.brokers.broker_process import running_broker
from support.clients.kafka_clients import DEADLINE_SECONDS, RECONNECTING, create_topic
from support.faults.swallowing_proxy import SwallowingProxy

ATTEMPTS_MAX = 5


@contextlib.contextmanager
def behind_a_proxy(tmp_path: Path) -> Iterator[SwallowingProxy]:
    """A broker that tells its clients to come by the proxy."""
    with SwallowingProxy() as proxy:
        advertised = f"advertised.listeners=PLAINTEXT://{proxy.address}"
        with running_broker(tmp_path / "data", advertised) as broker:
            proxy.target = ("127.0.0.1", broker.port)
            yield proxy


class Transacting:
    """A program with a transactional producer: it aborts on errors, and tries its transaction again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._raw = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "payments",
                "linger.ms": 20,  # all messages of a transaction in one batch
                # What is not answered waits to be sent again until the program has given it up.
                "retry.backoff.ms": 1_000,
                "retry.backoff.max.ms": 1_000,
                "log_level": 0,
                **RECONNECTING,
            }
        )
        self._raw.init_transactions(DEADLINE_SECONDS)
        self.refused: list[int] = []
        """The codes of errors upon which a transaction was aborted."""

    def lose(self, proxy: SwallowingProxy, *values: str) -> None:
        """Send them in a transaction, hear nothing, and abort it."""
        self._raw.begin_transaction()
        proxy.swallowing = True
        self._send(values, [])
        assert proxy.swallowed.acquire(timeout=DEADLINE_SECONDS)
        self._abort()
        proxy.swallowing = False

    def commit(self, *values: str) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                self._attempt(values)
            except KafkaException as failure:
                error = failure.args[0]
                assert not error.fatal(), error
                self.refused.append(error.code())
                self._abort()
            else:
                return
        raise AssertionError(f"not committed: {self.refused}")

    def _abort(self) -> None:
        """Asked again until the messages on their way are back in the queue, where aborting finds them."""
        give_up_at = time.monotonic() + DEADLINE_SECONDS
        while True:
            try:
                return self._raw.abort_transaction(0.2)
            except KafkaException as failure:
                if not failure.args[0].retriable() or time.monotonic() > give_up_at:
                    raise

    def _attempt(self, values: tuple[str, ...]) -> None:
        failed: list[KafkaError] = []
        self._raw.begin_transaction()
        self._send(values, failed)
        self._raw.flush(DEADLINE_SECONDS)
        self._raw.commit_transaction(DEADLINE_SECONDS)
        assert not failed, "a transaction with a failed message was committed"

    def _send(self, values: tuple[str, ...], failed: list[KafkaError]) -> None:
        def heard(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            self._raw.produce(self._topic, value, partition=0, on_delivery=heard)


def read_committed(bootstrap: str, topic: str) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(DEADLINE_SECONDS)
            assert message is not None
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


@pytest.mark.parametrize("second", [("b1", "b2", "b3"), ("b1", "b2"), ("b1", "b2", "b3", "b4")])
def test_what_follows_a_lost_answer_is_not_taken_for_it(
    tmp_path: Path, topic: str, second: tuple[str, ...]
) -> None:
    with behind_a_proxy(tmp_path) as proxy:
        create_topic(proxy.address, topic, 1)
        program = Transacting(proxy.address, topic)
        program.commit("before")
        program.lose(proxy, "a1", "a2", "a3")
        program.commit(*second)
        program.commit("after")
        assert read_committed(proxy.address, topic) == ["before", *second, "after"]
        assert program.refused == [KafkaError.UNKNOWN_PRODUCER_ID]
