"""Transactions with each client that has them: what is committed is seen, the rest is not."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.chaos.witness import read_everything
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    RECONNECTING,
    Message,
    confluent_consumer,
    create_topic,
    kafka_python,
)

TIMEOUT_MS = 60_000


class Transactional(Protocol):
    """A producer with a transactional id, by whichever client; one transaction at a time."""

    def begin(self) -> None: ...

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """Returns when they are acknowledged."""

    def send_offset(self, group: str, topic: str, offset: int) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        settings = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": TIMEOUT_MS,
            "log_level": 0,
            **RECONNECTING,
        }
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
        self._producer.init_transactions(DEADLINE_SECONDS)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=0)
        self._producer.flush(DEADLINE_SECONDS)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        consumer = confluent_consumer(self._bootstrap, group_id=group)
        try:
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(
                [TopicPartition(topic, 0, offset)], metadata, DEADLINE_SECONDS
            )
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(DEADLINE_SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE_SECONDS)

    def close(self) -> None:
        self._producer.purge()


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = kafka_python.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        futures = [self._producer.send(topic, value, partition=0) for value in values]
        for future in futures:
            future.get(DEADLINE_SECONDS)

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        place = kafka_python.TopicPartition(topic, 0)
        found = kafka_python.structs.OffsetAndMetadata(offset, "", -1)
        self._producer.send_offsets_to_transaction({place: found}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=1)


class AioKafka:
    """On a loop of its own, which runs while one waits for something."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._runner = asyncio.Runner()
        self._producer: Any = self._run(self._start(bootstrap, transactional_id))

    async def _start(self, bootstrap: str, transactional_id: str) -> Any:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        await producer.start()
        return producer

    def _run(self, work: Any) -> Any:
        return self._runner.run(work)

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        async def send() -> None:
            for future in [await self._producer.send(topic, value, partition=0) for value in values]:
                await asyncio.wait_for(future, DEADLINE_SECONDS)

        self._run(send())

    def send_offset(self, group: str, topic: str, offset: int) -> None:
        place = aiokafka.TopicPartition(topic, 0)
        self._run(self._producer.send_offsets_to_transaction({place: offset}, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(asyncio.wait_for(self._producer.stop(), DEADLINE_SECONDS))
        self._runner.close()


Make = Callable[[str, str], Transactional]
MAKERS: dict[str, Make] = {"confluent": Confluent, "kafka-python": KafkaPython, "aiokafka": AioKafka}
ANY_FENCED = (KafkaException, kafka_python.errors.KafkaError, aiokafka.errors.KafkaError)

each_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@pytest.fixture
def log(broker: BrokerProcess, topic: str) -> Log:
    create_topic(broker.bootstrap, topic)
    return Log(broker.bootstrap, topic)


class Log:
    """The one partition of a topic, as readers of either isolation see it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic

    def committed(self) -> list[bytes]:
        return self._read("read_committed")

    def everything(self) -> list[bytes]:
        return self._read("read_uncommitted")

    def _read(self, isolation: str) -> list[bytes]:
        place = (self._topic, 0)
        return list(read_everything(self._bootstrap, [place], isolation)[place].values())


@each_maker
def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    broker: BrokerProcess, topic: str, log: Log, make: Make
) -> None:
    producer = make(broker.bootstrap, topic)
    try:
        producer.begin()
        producer.send(topic, [b"a", b"b"])
        assert (log.committed(), log.everything()) == ([], [b"a", b"b"])
        producer.commit()
        producer.begin()
        producer.send(topic, [b"x", b"y"])
        producer.abort()
        producer.begin()
        producer.send(topic, [b"c"])
        producer.commit()
        wait_for(lambda: log.committed() == [b"a", b"b", b"c"])
        assert log.everything() == [b"a", b"b", b"x", b"y", b"c"]
    finally:
        producer.close()


def wait_for(condition: Callable[[], bool]) -> None:
    """Markers are written after the answer to a commit."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


@each_maker
def test_a_successor_fences_and_aborts(broker: BrokerProcess, topic: str, log: Log, make: Make) -> None:
    zombie = make(broker.bootstrap, topic)
    zombie.begin()
    zombie.send(topic, [b"lost"])
    successor = make(broker.bootstrap, topic)
    try:
        successor.begin()
        successor.send(topic, [b"kept"])
        successor.commit()
        with pytest.raises(ANY_FENCED):
            zombie.send(topic, [b"late"])
            zombie.commit()
        wait_for(lambda: log.committed() == [b"kept"])
        assert log.everything() == [b"lost", b"kept"]
    finally:
        successor.close()
        abandon(zombie)


def abandon(producer: Transactional) -> None:
    """A fenced producer may not be able to close without a complaint."""
    with contextlib.suppress(*ANY_FENCED):
        producer.close()


@each_maker
def test_offsets_are_committed_with_the_messages(
    broker: BrokerProcess, topic: str, log: Log, make: Make
) -> None:
    group = f"{topic}-group"
    producer = make(broker.bootstrap, topic)
    try:
        producer.begin()
        producer.send(topic, [b"a"])
        producer.send_offset(group, topic, 7)
        producer.commit()
        wait_for(lambda: offset_of(broker.bootstrap, group, topic) == 7)
        producer.begin()
        producer.send(topic, [b"b"])
        producer.send_offset(group, topic, 9)
        producer.abort()
        wait_for(lambda: log.everything() == [b"a", b"b"])
        assert offset_of(broker.bootstrap, group, topic) == 7
    finally:
        producer.close()


def offset_of(bootstrap: str, group: str, topic: str) -> int:
    """Once it is decided: the library gives up after a while when the markers take long."""
    consumer = confluent_consumer(bootstrap, group_id=group, isolation_level="read_committed")
    deadline = time.monotonic() + DEADLINE_SECONDS
    try:
        while True:
            try:
                return consumer.committed([TopicPartition(topic, 0)], DEADLINE_SECONDS)[0].offset
            except KafkaException as unstable:
                code = unstable.args[0].code()
                if code != KafkaError.UNSTABLE_OFFSET_COMMIT or time.monotonic() > deadline:
                    raise
    finally:
        consumer.close()


def test_a_transaction_that_takes_too_long_is_aborted(broker: BrokerProcess, topic: str, log: Log) -> None:
    settings = {"transactional.id": topic, "transaction.timeout.ms": 1_000, "log_level": 0}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **settings})
    producer.init_transactions(DEADLINE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"late", partition=0)
    producer.flush(DEADLINE_SECONDS)
    plain = [Message(b"behind it")]
    CLIENTS[0].produce(broker.bootstrap, topic, plain)
    wait_for(lambda: log.committed() == [b"behind it"])
    with pytest.raises(KafkaException):
        producer.commit_transaction(DEADLINE_SECONDS)
    assert log.committed() == [b"behind it"]


def test_messages_behind_an_open_transaction_wait_for_it(broker: BrokerProcess, topic: str, log: Log) -> None:
    """A reader of committed messages does not overtake: the order of a partition is one."""
    first, second = Confluent(broker.bootstrap, f"{topic}-1"), Confluent(broker.bootstrap, f"{topic}-2")
    first.begin()
    first.send(topic, [b"first"])
    second.begin()
    second.send(topic, [b"second"])
    second.commit()
    assert log.committed() == []
    first.commit()
    wait_for(lambda: log.committed() == [b"first", b"second"])


def test_an_offset_in_an_open_transaction_is_waited_for(broker: BrokerProcess, topic: str, log: Log) -> None:
    """Else a consumer would begin before what is about to be committed, and read it twice."""
    group = f"{topic}-group"
    producer = Confluent(broker.bootstrap, topic)
    producer.begin()
    producer.send_offset(group, topic, 5)
    consumer = confluent_consumer(broker.bootstrap, group_id=group, isolation_level="read_committed")
    try:
        with pytest.raises(KafkaException) as waiting:
            consumer.committed([TopicPartition(topic, 0)], 0.5)
        assert waiting.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT)
    finally:
        consumer.close()
    producer.commit()
    assert offset_of(broker.bootstrap, group, topic) == 5


def test_an_open_transaction_outlives_kill_9(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker()
    create_topic(broker.bootstrap, topic)
    log = Log(broker.bootstrap, topic)
    producer = Confluent(broker.bootstrap, topic)
    producer.begin()
    producer.send(topic, [b"before"])
    broker.kill()
    broker.restart()
    assert log.committed() == []
    producer.send(topic, [b"after"])
    producer.commit()
    wait_for(lambda: log.committed() == [b"before", b"after"])
    broker.kill()
    broker.restart()
    assert log.committed() == [b"before", b"after"]


@pytest.fixture
def kafka_admin(broker: BrokerProcess) -> Iterator[Any]:
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield admin
    admin.close()


def test_administration_of_transactions(
    broker: BrokerProcess, topic: str, log: Log, kafka_admin: Any
) -> None:
    producer = Confluent(broker.bootstrap, topic)
    producer.begin()
    producer.send(topic, [b"a"])
    listed = [each for of_broker in kafka_admin.list_transactions().values() for each in of_broker]
    assert (topic, "ONGOING") in {(each.transactional_id, each.state.name) for each in listed}
    producer.commit()
    wait_for(lambda: "CompleteCommit" in repr(kafka_admin.describe_transactions([topic])))
