"""Real clients that have logged in: ada may write and bob may read, each in a group of his own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient, NewTopic

from support.brokers.forebay_command import forebay
from support.brokers.local_broker import LocalBroker
from support.brokers.sasl_broker import BROKER_PASSWORD, PASSWORDS, sasl_broker
from support.clients.kafka_clients import CLIENTS, DEADLINE_SECONDS, kafka_python, need
from support.waiting import Patience

TOPIC = "orders"
SETTINGS = {"authorizer.class.name": "acl", "super.users": "User:broker"}
ALL_PASSWORDS = {**PASSWORDS, "broker": BROKER_PASSWORD}


def librdkafka(broker: LocalBroker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": ALL_PASSWORDS[user],
    }


def arguments(broker: LocalBroker, user: str) -> dict[str, Any]:
    """For the clients that are written in Python."""
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": ALL_PASSWORDS[user],
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    directory: Path = tmp_path_factory.mktemp("logins")
    with sasl_broker(directory / "data", SETTINGS) as broker:
        admin = AdminClient(librdkafka(broker, "broker"))
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(DEADLINE_SECONDS)
        login = directory / "admin.properties"
        login.write_text("".join(f"{key}={value}\n" for key, value in librdkafka(broker, "broker").items()))
        for rule in (
            ("User:ada", "write", "topic", TOPIC),
            ("User:bob", "read", "topic", TOPIC),
            ("User:bob", "read", "group", "bob-", "--prefix"),
        ):
            command = ("acl", "add", *rule, "--command-config", str(login))
            added = forebay(*command, bootstrap=broker.bootstrap)
            assert added.code == 0, added.err
        yield broker


def sent(broker: LocalBroker, user: str, value: bytes) -> KafkaError | None:
    """What librdkafka says of a message."""
    outcomes: list[KafkaError | None] = []
    producer = confluent_kafka.Producer(librdkafka(broker, user))
    producer.produce(TOPIC, value, on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(DEADLINE_SECONDS) == 0
    return outcomes[0]


def test_librdkafka(broker: LocalBroker) -> None:
    assert sent(broker, "ada", b"by librdkafka") is None
    refused = sent(broker, "bob", b"no")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    settings = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    found = {}
    for user, group in (("bob", "bob-1"), ("bob", "else"), ("ada", "bob-1")):
        consumer = confluent_kafka.Consumer(librdkafka(broker, user) | settings | {"group.id": group})
        try:
            consumer.subscribe([TOPIC])
            (message,) = consumer.consume(1, DEADLINE_SECONDS)
            error = message.error()
            found[user, group] = message.value() if error is None else error.code()
        finally:
            consumer.close()
    assert found.pop(("bob", "bob-1")) == b"by librdkafka"
    assert set(found.values()) == {KafkaError.GROUP_AUTHORIZATION_FAILED}


def test_librdkafka_is_assigned_what_it_may_see_of_a_pattern(broker: LocalBroker) -> None:
    """In the newer protocol, where the broker matches."""
    hidden = "orders-of-others"
    admin = AdminClient(librdkafka(broker, "broker"))
    admin.create_topics([NewTopic(hidden, 1)])[hidden].result(DEADLINE_SECONDS)
    settings = {"group.protocol": "consumer", "group.id": "bob-pattern", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(librdkafka(broker, "bob") | settings)
    assigned: list[str] = []
    try:
        consumer.subscribe(
            ["^orders.*"], on_assign=lambda _, found: assigned.extend(each.topic for each in found)
        )
        patience = Patience("the pattern is assigned")
        while not assigned:
            patience.check()
            message = consumer.poll(0.1)
            assert message is None or message.error() is None, message and message.error()
    finally:
        consumer.close()
    assert assigned == [TOPIC]


def test_kafka_python(broker: LocalBroker) -> None:
    sent(broker, "ada", b"first")
    # With idempotence it would ask for a producer id first, for which he would need a topic to write to.
    writer = kafka_python.KafkaProducer(**arguments(broker, "bob"), enable_idempotence=False)
    try:
        with pytest.raises(kafka_python.errors.TopicAuthorizationFailedError):
            writer.send(TOPIC, b"no").get(DEADLINE_SECONDS)
    finally:
        writer.close()
    readers = {}
    for user in ("bob", "ada"):
        reader = kafka_python.KafkaConsumer(**arguments(broker, user), auto_offset_reset="earliest")
        try:
            reader.assign([kafka_python.TopicPartition(TOPIC, 0)])
            readers[user] = bool(reader.poll(timeout_ms=60_000, max_records=1))
        except kafka_python.errors.TopicAuthorizationFailedError:
            readers[user] = False
        finally:
            reader.close()
    assert readers == {"bob": True, "ada": False}


async def test_aiokafka(broker: LocalBroker) -> None:
    async with aiokafka.AIOKafkaProducer(**arguments(broker, "ada")) as producer:
        await producer.send_and_wait(TOPIC, b"by aiokafka", partition=0)
    async with aiokafka.AIOKafkaProducer(**arguments(broker, "bob")) as producer:
        with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
            await producer.send_and_wait(TOPIC, b"no", partition=0)
    async with aiokafka.AIOKafkaConsumer(
        TOPIC, **arguments(broker, "bob"), group_id="bob-aio", auto_offset_reset="earliest"
    ) as consumer:
        assert (await consumer.getone()).value is not None


def test_kcat_sees_what_it_may(broker: LocalBroker, tmp_path: Path) -> None:
    need(CLIENTS[-1])
    admin = AdminClient(librdkafka(broker, "broker"))
    admin.create_topics([NewTopic("hidden", 1)])["hidden"].result(DEADLINE_SECONDS)
    file = tmp_path / "kcat.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in librdkafka(broker, "bob").items()))
    listed = subprocess.run(
        ["kcat", "-F", str(file), "-L", "-m", "60"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert f'topic "{TOPIC}"' in listed.stdout, listed.stderr
    assert "hidden" not in listed.stdout
