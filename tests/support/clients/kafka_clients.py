"""Four real clients behind one small face, so that a test can be said once and run with each of them.

Only what all of them can do is here: produce a list of messages, and read a number of messages of one
partition without a group. What a client does in its own way is tested with its own API.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import subprocess
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import aiokafka
import aiokafka.client
import aiokafka.codec
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

with warnings.catch_warnings():
    # kafka-python reads its schemas by a deprecated call when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.admin
    import kafka.codec

    import kafka

_close_aiokafka = aiokafka.client.AIOKafkaClient.close


async def _close_all(self: Any) -> None:
    """aiokafka leaves a connection open that is being made while it is closed, and a later test would be
    told of it."""
    await _close_aiokafka(self)
    async with self._get_conn_lock:
        pass
    await _close_aiokafka(self)


aiokafka.client.AIOKafkaClient.close = _close_all

kafka_python: Any = kafka
"""For tests that use it directly: importing it from here is what keeps its warning away."""

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEADLINE_SECONDS = 120.0
RECONNECTING = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}
"""For librdkafka: a broker that a test has killed is back within a second."""

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    partition: int = 0


class Received(NamedTuple):
    message: Message
    offset: int


class Client(Protocol):
    name: str
    null_headers: bool
    """Whether it can send a header without a value."""

    def missing(self, codec: str = "none") -> str | None:
        """Why this client cannot be used here, if it cannot."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
    ) -> None:
        """Returns when every message is acknowledged."""

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Received]:
        """`count` messages from the offset on; fewer when no more have come in time."""


class Confluent:
    name = "confluent"
    null_headers = True

    def missing(self, codec: str = "none") -> str | None:
        return None

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
    ) -> None:
        errors: list[Any] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "linger.ms": 5,
                "message.max.bytes": 20_000_000,
                "log_level": 0,
            }
        )
        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                message.partition,
                on_delivery=lambda error, _: errors.append(error) if error else None,
                timestamp=message.timestamp or 0,
                headers=list(message.headers) or None,
            )
            producer.poll(0)
        assert producer.flush(DEADLINE_SECONDS) == 0, "messages are left in the producer"
        assert not errors, errors

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Received]:
        received: list[Received] = []
        deadline = time.monotonic() + DEADLINE_SECONDS
        consumer = confluent_consumer(bootstrap)
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, partition, offset)])
            while len(received) < count and time.monotonic() < deadline:
                for message in consumer.consume(count - len(received), 0.5):
                    assert message.error() is None, message.error()
                    received.append(from_confluent(message))
        finally:
            consumer.close()
        return received


def confluent_consumer(bootstrap: str, **settings: Any) -> confluent_kafka.Consumer:
    """A consumer that will not commit; its group id is only a formality of the library."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    quiet = {"enable.auto.commit": False, "log_level": 0, **RECONNECTING}
    return confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "none", **quiet, **dotted})


def know(consumer: confluent_kafka.Consumer, topics: Iterable[str]) -> None:
    """Without it, librdkafka looks for the leaders of what it is assigned half a second later."""
    for topic in topics:
        consumer.list_topics(topic, timeout=DEADLINE_SECONDS)


def from_confluent(message: Any) -> Received:
    kind, timestamp = message.timestamp()
    return Received(
        Message(
            value=message.value(),
            key=message.key(),
            headers=tuple(message.headers() or ()),
            timestamp=timestamp if kind else None,
            partition=message.partition(),
        ),
        message.offset(),
    )


class KafkaPython:
    name = "kafka-python"
    null_headers = False

    def missing(self, codec: str = "none") -> str | None:
        if codec == "none" or getattr(kafka.codec, f"has_{codec}")():
            return None
        return f"kafka-python needs a package of its own for {codec}"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=acks == "all",
            linger_ms=5,
            max_request_size=20_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    list(message.headers),
                    message.partition,
                    message.timestamp,
                )
                for message in messages
            ]
            for future in futures:
                future.get(DEADLINE_SECONDS)
        finally:
            producer.close()

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Received]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, max_partition_fetch_bytes=20_000_000, fetch_max_bytes=50_000_000
        )
        place = kafka.TopicPartition(topic, partition)
        received: list[Received] = []
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            consumer.assign([place])
            consumer.seek(place, offset)
            while len(received) < count and time.monotonic() < deadline:
                polled = consumer.poll(timeout_ms=500, max_records=count - len(received))
                received += map(from_record, polled.get(place, []))
        finally:
            consumer.close()
        return received


def from_record(record: Any) -> Received:
    """A record of kafka-python or aiokafka: both have the same shape."""
    return Received(
        Message(
            record.value, record.key, tuple(map(tuple, record.headers)), record.timestamp, record.partition
        ),
        record.offset,
    )


class AioKafka:
    name = "aiokafka"
    null_headers = True

    def missing(self, codec: str = "none") -> str | None:
        if codec == "none" or getattr(aiokafka.codec, f"has_{codec}")():
            return None
        return f"aiokafka needs a package of its own for {codec}"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
    ) -> None:
        asyncio.run(self._produce(bootstrap, topic, messages, codec, acks))

    async def _produce(
        self, bootstrap: str, topic: str, messages: Sequence[Message], codec: str, acks: str
    ) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            linger_ms=5,
            max_request_size=20_000_000,
        )
        async with producer:
            futures = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    message.partition,
                    message.timestamp,
                    list(message.headers) or None,
                )
                for message in messages
            ]
            await asyncio.wait_for(asyncio.gather(*futures), DEADLINE_SECONDS)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Received]:
        return asyncio.run(self._consume(bootstrap, topic, count, partition, offset))

    async def _consume(
        self, bootstrap: str, topic: str, count: int, partition: int, offset: int
    ) -> list[Received]:
        place = aiokafka.TopicPartition(topic, partition)
        received: list[Received] = []
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, max_partition_fetch_bytes=20_000_000, fetch_max_bytes=50_000_000
        )
        deadline = time.monotonic() + DEADLINE_SECONDS
        async with consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            while len(received) < count and time.monotonic() < deadline:
                polled = await consumer.getmany(timeout_ms=500, max_records=count - len(received))
                received += map(from_record, polled.get(place, []))
        return received


class Kcat:
    """Text only: messages go through a pipe with separators and come back as JSON.

    It sends what is empty as null, and stamps every message with its own time.
    """

    name = "kcat"
    null_headers = True

    def missing(self, codec: str = "none") -> str | None:
        return None if shutil.which("kcat") else "kcat is not installed (make tools)"

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
    ) -> None:
        # Headers and the partition are those of the whole invocation.
        for (headers, partition), alike in itertools.groupby(messages, lambda m: (m.headers, m.partition)):
            arguments = ["-P", "-Z", "-K", r"\x1f", "-D", r"\x1e", "-p", str(partition), "-z", codec]
            arguments += ["-X", f"acks={acks}", "-X", "message.max.bytes=20000000"]
            for name, value in headers:
                arguments += ["-H", name if value is None else f"{name}={value.decode()}"]
            lines = [(message.key or b"") + b"\x1f" + (message.value or b"") for message in alike]
            kcat(bootstrap, *arguments, "-t", topic, stdin=b"\x1e".join(lines))

    def consume(
        self, bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0
    ) -> list[Received]:
        place = ["-t", topic, "-p", str(partition), "-o", str(offset)]
        out = kcat(bootstrap, "-C", "-q", "-J", "-c", str(count), *place)
        return [_from_json(json.loads(line)) for line in out.splitlines()]


def kcat(bootstrap: str, *arguments: str, stdin: bytes = b"") -> bytes:
    """One kcat command line, to its end."""
    command = ["kcat", "-b", bootstrap, "-m", "20", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout


def _from_json(found: dict[str, Any]) -> Received:
    headers = found.get("headers") or []
    return Received(
        Message(
            _bytes(found["payload"]),
            _bytes(found["key"]),
            tuple((name, _bytes(value)) for name, value in zip(headers[::2], headers[1::2], strict=True)),
            found["ts"],
            found["partition"],
        ),
        found["offset"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def confluent_admin(bootstrap: str) -> AdminClient:
    # Tests stop brokers under their clients: what the library says of that is of no interest.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(bootstrap: str, topic: str, partitions: int = 1, /, **config: str) -> None:
    """Settings are written with underscores: retention_ms."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = confluent_admin(bootstrap)
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=settings)
    admin.create_topics([new])[topic].result(DEADLINE_SECONDS)


def contents(received: Sequence[Received]) -> Iterator[tuple[bytes | None, bytes | None, Headers]]:
    """What a producer decides of a message: everything but its time and its place."""
    return ((found.message.key, found.message.value, found.message.headers) for found in received)


CLIENTS: tuple[Client, ...] = (Confluent(), KafkaPython(), AioKafka(), Kcat())

each_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)


def need(client: Client, codec: str = "none") -> None:
    """Skip the test where this client, or the codec in it, is not installed."""
    reason = client.missing(codec)
    if reason is not None:
        pytest.skip(reason)
