"""Real clients on a SASL listener: each mechanism, right and wrong passwords."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.brokers.forebay_command import forebay
from support.brokers.local_broker import LocalBroker
from support.brokers.sasl_broker import PASSWORDS, sasl_broker
from support.brokers.tls_files import TlsFiles
from support.clients.kafka_clients import CLIENTS, DEADLINE_SECONDS, kafka_python, need

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
TOPIC = "t"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with sasl_broker(tmp_path_factory.mktemp("sasl") / "data") as broker:
        admin = AdminClient(librdkafka(broker.bootstrap, "SCRAM-SHA-512"))
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(DEADLINE_SECONDS)
        yield broker


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_broker(tmp_path_factory: pytest.TempPathFactory, tls: TlsFiles) -> Iterator[LocalBroker]:
    settings = {**tls.broker_settings(), "listeners": "SASL_SSL://127.0.0.1:0"}
    with sasl_broker(tmp_path_factory.mktemp("sasl-tls") / "data", settings) as broker:
        yield broker


def librdkafka(bootstrap: str, mechanism: str, password: str = PASSWORDS["ada"]) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ada",
        "sasl.password": password,
        "log_level": 0,
    }


def arguments(bootstrap: str, mechanism: str, password: str = PASSWORDS["ada"]) -> dict[str, Any]:
    """For the clients that are written in Python."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "ada",
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: LocalBroker, mechanism: str) -> None:
    config = librdkafka(broker.bootstrap, mechanism)
    producer = confluent_kafka.Producer(config)
    offsets: list[Any] = []
    producer.produce(TOPIC, b"librdkafka", on_delivery=lambda _, message: offsets.append(message.offset()))
    assert producer.flush(DEADLINE_SECONDS) == 0
    consumer = confluent_kafka.Consumer({**config, "group.id": f"by {mechanism}"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, offsets[0])])
        (message,) = consumer.consume(1, DEADLINE_SECONDS)
        assert message.value() == b"librdkafka"
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_is_told_that_a_password_is_wrong(broker: LocalBroker, mechanism: str) -> None:
    errors: list[confluent_kafka.KafkaError] = []
    config = librdkafka(broker.bootstrap, mechanism, "wrong") | {"error_cb": errors.append}
    admin = AdminClient(config)
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=5)
    admin.poll(1)
    assert confluent_kafka.KafkaError._AUTHENTICATION in {error.code() for error in errors}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: LocalBroker, mechanism: str) -> None:
    settings = arguments(broker.bootstrap, mechanism)
    producer = kafka_python.KafkaProducer(**settings)
    try:
        sent = producer.send(TOPIC, b"kafka-python").get(DEADLINE_SECONDS)
    finally:
        producer.close()
    consumer = kafka_python.KafkaConsumer(**settings)
    try:
        partition = kafka_python.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        assert next(consumer).value == b"kafka-python"
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka(broker: LocalBroker, mechanism: str) -> None:
    settings = arguments(broker.bootstrap, mechanism)
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        sent = await producer.send_and_wait(TOPIC, b"aiokafka", partition=0)
    async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
        partition = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        assert (await consumer.getone()).value == b"aiokafka"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_is_told_that_a_password_is_wrong(broker: LocalBroker, mechanism: str) -> None:
    producer = aiokafka.AIOKafkaProducer(**arguments(broker.bootstrap, mechanism, "wrong"))
    with pytest.raises(aiokafka.errors.KafkaError):
        await producer.start()
    await producer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat(broker: LocalBroker, mechanism: str, tmp_path: Path) -> None:
    need(CLIENTS[-1])
    config = tmp_path / "kcat.conf"
    settings = librdkafka(broker.bootstrap, mechanism)
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    listed = subprocess.run(
        ["kcat", "-F", str(config), "-L", "-m", "60"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert f'topic "{TOPIC}"' in listed.stdout, listed.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_with_tls(tls_broker: LocalBroker, tls: TlsFiles, mechanism: str) -> None:
    config = librdkafka(tls_broker.bootstrap, mechanism)
    config |= {"security.protocol": "SASL_SSL", "ssl.ca.location": tls.ca}
    before = tls_broker.on_loop(lambda node: node.metrics.logins)
    admin = AdminClient(config)
    assert admin.list_topics(timeout=DEADLINE_SECONDS).brokers
    assert tls_broker.on_loop(lambda node: node.metrics.logins) > before


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_with_tls(tls_broker: LocalBroker, tls: TlsFiles, mechanism: str) -> None:
    settings = arguments(tls_broker.bootstrap, mechanism)
    settings |= {"security_protocol": "SASL_SSL", "ssl_cafile": tls.ca}
    producer = kafka_python.KafkaProducer(**settings)
    try:
        assert producer.send(TOPIC, b"x").get(DEADLINE_SECONDS).offset >= 0
    finally:
        producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_aiokafka_with_tls(tls_broker: LocalBroker, tls: TlsFiles, mechanism: str) -> None:
    settings = arguments(tls_broker.bootstrap, mechanism)
    context = ssl.create_default_context(cafile=tls.ca)
    settings |= {"security_protocol": "SASL_SSL", "ssl_context": context}
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        await producer.client.fetch_all_metadata()


def test_our_own_commands_with_tls(tls_broker: LocalBroker, tls: TlsFiles, tmp_path: Path) -> None:
    config = librdkafka(tls_broker.bootstrap, "SCRAM-SHA-256")
    config |= {"security.protocol": "SASL_SSL", "ssl.ca.location": tls.ca}
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
    created = forebay(
        "topic", "create", "d", "--config", "forebay.delay.enable=true", "--command-config", str(file)
    )
    assert created.code == 0, created.err
    waiting = forebay("delay", "list", "d", "--json", "--command-config", str(file))
    assert waiting.code == 0, waiting.err


def test_a_client_without_a_login_is_not_served(broker: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    with pytest.raises(confluent_kafka.KafkaException):
        admin.list_topics(timeout=2)


async def test_clients_written_in_python_log_in_with_a_delegation_token(broker: LocalBroker) -> None:
    """They cannot say that it is one."""
    how = [
        part
        for key, value in librdkafka(broker.bootstrap, "SCRAM-SHA-512").items()
        if key != "log_level"
        for part in ("-X", f"{key}={value}")
    ]
    made = forebay("token", "create", "--json", *how, bootstrap=broker.bootstrap).json()
    settings = arguments(broker.bootstrap, "SCRAM-SHA-512", made["secret"])
    settings["sasl_plain_username"] = made["token"]
    producer = kafka_python.KafkaProducer(**settings)
    try:
        sent = producer.send(TOPIC, b"by token").get(DEADLINE_SECONDS)
    finally:
        producer.close()
    async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
        partition = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        assert (await consumer.getone()).value == b"by token"
    assert forebay("token", "expire", made["token"], "--yes", *how, bootstrap=broker.bootstrap).code == 0
