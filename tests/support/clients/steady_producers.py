"""Producers of several client libraries that go on sending until they are told to stop, each in a thread.

Each numbers its messages per partition, and sends to every partition in turn. None of them may fail: an error
that a library reports to its user ends the producer, and `finish` raises it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

import aiokafka
import confluent_kafka

from support.clients.kafka_clients import DEADLINE_SECONDS, RECONNECTING, kafka_python

_PAUSE_S = 0.02
"""Several of them share a machine with the broker and with other tests."""
_PATIENCE_MS = 600_000
"""For transactions and requests: how long anything takes says nothing about a broker on a busy machine."""
_TRANSACTION = 8
"""Messages of one transaction."""


class SteadyProducer(ABC):
    """`acknowledged` counts messages per partition; they are `name:partition:0`, `:1` and so on."""

    transactional = False
    exactly_once = True
    """Whether it promises its user that nothing is doubled or out of order when it has to send again."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.name = type(self).__name__
        self.acknowledged: Counter[int] = Counter()
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._next: Counter[int] = Counter()
        self._sent = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._main, name=self.name)
        self._thread.start()

    @property
    def total(self) -> int:
        return self.acknowledged.total()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def reach(self, count: int) -> None:
        """Wait until this many more messages are acknowledged."""
        wanted = self.total + count
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.total < wanted:
            if self._failure is not None:
                raise self._failure
            assert self._thread.is_alive(), f"{self.name} has ended"
            assert time.monotonic() < deadline, f"{self.name} is stuck at {self.total}"
            time.sleep(0.01)

    def finish(self) -> None:
        """Send what is left, and end; raises what has gone wrong."""
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_SECONDS)

    def _main(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._failure = error

    @abstractmethod
    def _run(self) -> None: ...

    def _message(self) -> tuple[int, bytes]:
        """The next one: its partition and its value."""
        partition = self._sent % self._partitions
        self._sent += 1
        number = self._next[partition]
        self._next[partition] += 1
        return partition, b"%s:%d:%d" % (self.name.encode(), partition, number)

    def _settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self._bootstrap, "log_level": 0, "linger.ms": 1, **RECONNECTING}


class ConfluentIdempotent(SteadyProducer):
    """Five batches in flight."""

    def _options(self) -> dict[str, Any]:
        return {"enable.idempotence": True, "topic.metadata.refresh.interval.ms": 500}

    def _run(self) -> None:
        producer = confluent_kafka.Producer({**self._settings(), **self._options()})
        errors: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                self.acknowledged[message.partition()] += 1

        while not self.stopping and not errors:
            partition, value = self._message()
            producer.produce(self._topic, value, partition=partition, on_delivery=delivered)
            producer.poll(_PAUSE_S)
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert not errors, errors


class ConfluentPlain(ConfluentIdempotent):
    exactly_once = False

    def _options(self) -> dict[str, Any]:
        return {"acks": "all", "max.in.flight": 1}


class ConfluentTransactional(SteadyProducer):
    transactional = True

    def _run(self) -> None:
        producer = confluent_kafka.Producer(
            {
                **self._settings(),
                "transactional.id": f"{self._topic}-c",
                "transaction.timeout.ms": _PATIENCE_MS,
            }
        )
        producer.init_transactions(DEADLINE_SECONDS)
        while not self.stopping:
            producer.begin_transaction()
            sent = [self._message() for _ in range(_TRANSACTION)]
            for partition, value in sent:
                producer.produce(self._topic, value, partition=partition)
                producer.poll(0)
            producer.commit_transaction(DEADLINE_SECONDS)
            self.acknowledged.update(partition for partition, _ in sent)
            time.sleep(_PAUSE_S)


class KafkaPythonPlain(SteadyProducer):
    exactly_once = False

    def _options(self) -> dict[str, Any]:
        return {"acks": "all", "enable_idempotence": False, "max_in_flight_requests_per_connection": 1}

    def _run(self) -> None:
        producer = kafka_python.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            retries=1000,
            metadata_max_age_ms=500,
            delivery_timeout_ms=_PATIENCE_MS,
            **self._options(),
        )
        try:
            while not self.stopping:
                sent = [self._message() for _ in range(_TRANSACTION)]
                futures = [
                    producer.send(self._topic, value, partition=partition) for partition, value in sent
                ]
                for (partition, _), future in zip(sent, futures, strict=True):
                    future.get(DEADLINE_SECONDS)
                    self.acknowledged[partition] += 1
                time.sleep(_PAUSE_S)
        finally:
            producer.close()


class KafkaPythonIdempotent(KafkaPythonPlain):
    exactly_once = True

    def _options(self) -> dict[str, Any]:
        return {"acks": "all", "enable_idempotence": True}


class AiokafkaIdempotent(SteadyProducer):
    def _run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap, enable_idempotence=True, metadata_max_age_ms=500
        )
        await producer.start()
        try:
            while not self.stopping:
                sent = [self._message() for _ in range(_TRANSACTION)]
                futures = [
                    await producer.send(self._topic, value, partition=partition) for partition, value in sent
                ]
                async with asyncio.timeout(DEADLINE_SECONDS):
                    await asyncio.gather(*futures)
                self.acknowledged.update(partition for partition, _ in sent)
                await asyncio.sleep(_PAUSE_S)
        finally:
            await producer.stop()


class AiokafkaTransactional(AiokafkaIdempotent):
    transactional = True

    async def _produce(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            transactional_id=f"{self._topic}-a",
            transaction_timeout_ms=_PATIENCE_MS,
            metadata_max_age_ms=500,
        )
        await producer.start()
        try:
            while not self.stopping:
                async with asyncio.timeout(DEADLINE_SECONDS), producer.transaction():
                    sent = [self._message() for _ in range(_TRANSACTION)]
                    for partition, value in sent:
                        await producer.send(self._topic, value, partition=partition)
                self.acknowledged.update(partition for partition, _ in sent)
                await asyncio.sleep(_PAUSE_S)
        finally:
            await producer.stop()


PRODUCERS: tuple[type[SteadyProducer], ...] = (
    ConfluentIdempotent,
    ConfluentPlain,
    ConfluentTransactional,
    KafkaPythonPlain,
    KafkaPythonIdempotent,
    AiokafkaIdempotent,
    AiokafkaTransactional,
)
