"""Real clients over their quotas: they are told, they wait, and everything arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from forebay.errors import ErrorCode
from support.access.principals import KnownClient
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import PASSWORDS, log_in, sasl_broker
from support.clients.kafka_clients import (
    DEADLINE_SECONDS,
    RECONNECTING,
    Client,
    Message,
    confluent_consumer,
    create_topic,
    each_client,
    kafka_python,
    need,
)
from support.clients.quota_calls import describe, described, set_quota
from support.clients.wire_client import WireClient, create
from support.waiting import Patience

EVERYBODY: dict[str, str | None] = {"user": "ANONYMOUS"}
BOUND = 400_000
BURST_S = 1.0
"""Of a broker with two windows of a second."""
MESSAGES = [Message(b"%06d" % number + b"x" * 9_994) for number in range(120)]
"""1.2 MB: three seconds' worth."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, {"quota.window.num": "2", "controller.quota.window.num": "1"}) as broker:
        yield broker


@pytest.fixture
def admin(broker: LocalBroker) -> Iterator[KnownClient]:
    with KnownClient(broker) as client:
        yield client


def metric(broker: LocalBroker, name: str) -> int:
    return broker.on_loop(lambda node: int(getattr(node.metrics, name)))


@each_client
def test_producers_and_consumers_wait_and_everything_arrives(
    broker: LocalBroker, admin: KnownClient, client: Client
) -> None:
    need(client)
    create_topic(broker.bootstrap, "t")
    set_quota(admin, EVERYBODY, producer_byte_rate=float(BOUND), consumer_byte_rate=float(BOUND))
    started = time.monotonic()
    client.produce(broker.bootstrap, "t", MESSAGES)
    received = client.consume(broker.bootstrap, "t", len(MESSAGES))
    took_s = time.monotonic() - started
    assert [each.message.value for each in received] == [each.value for each in MESSAGES]
    assert [each.offset for each in received] == list(range(len(MESSAGES)))
    assert metric(broker, "throttled_produce") > 0 and metric(broker, "throttled_produce_ms") > 0
    assert metric(broker, "throttled_fetch") > 0 and metric(broker, "throttled_fetch_ms") > 0
    fetched = metric(broker, "bytes_out")
    # Never less, on any machine: it is what the quota promises.
    assert fetched <= BOUND * (BURST_S + took_s) + 1_100_000, "one answer may be over it"


def test_a_producer_on_librdkafka_is_told(broker: LocalBroker, admin: KnownClient) -> None:
    create_topic(broker.bootstrap, "t")
    set_quota(admin, {"client-id": "bulk"}, producer_byte_rate=float(BOUND))
    told: list[Any] = []
    failed: list[Any] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": "bulk",
            "batch.size": 50_000,
            "throttle_cb": told.append,
            "log_level": 0,
        }
    )
    started = time.monotonic()
    for message in MESSAGES:
        producer.produce(
            "t", message.value, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(DEADLINE_SECONDS) == 0 and not failed
    took_s = time.monotonic() - started
    assert told and max(event.throttle_time for event in told) > 0
    sent = metric(broker, "bytes_in")
    assert sent >= 1_200_000
    assert sent <= BOUND * (BURST_S + took_s) + 60_000, "the quota, its burst, and the last request"


def test_other_clients_of_the_broker_do_not_wait(broker: LocalBroker, admin: KnownClient) -> None:
    create_topic(broker.bootstrap, "t")
    set_quota(admin, {"client-id": "bulk"}, producer_byte_rate=1.0, consumer_byte_rate=1.0)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "client.id": "other"})
    for message in MESSAGES:
        producer.produce("t", message.value)
    assert producer.flush(DEADLINE_SECONDS) == 0
    consumer = confluent_consumer(broker.bootstrap, client_id="other")
    try:
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        count = 0
        while count < len(MESSAGES):
            count += len(consumer.consume(len(MESSAGES), 0.5))
    finally:
        consumer.close()
    assert (metric(broker, "throttled_produce"), metric(broker, "throttled_fetch")) == (0, 0)


def test_a_user_that_has_logged_in_has_its_own_quota(tmp_path: Path) -> None:
    settings = {"quota.window.num": "2", "super.users": "User:bob", "authorizer.class.name": "acl"}
    with sasl_broker(tmp_path / "data", settings | {"allow.everyone.if.no.acl.found": "true"}) as broker:
        login = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "log_level": 0,
        }

        def told(user: str) -> list[Any]:
            events: list[Any] = []
            producer = confluent_kafka.Producer(
                login
                | {
                    "sasl.username": user,
                    "sasl.password": PASSWORDS[user],
                    "throttle_cb": events.append,
                    "batch.size": 50_000,
                }
            )
            for message in MESSAGES[:60]:
                producer.produce("t", message.value)
            assert producer.flush(DEADLINE_SECONDS) == 0
            return events

        with WireClient(broker.bootstrap) as client:
            log_in(client, user="bob")
            create(client, "t")
            set_quota(client, {"user": "ada"}, producer_byte_rate=float(BOUND))
        assert told("ada") and not told("bob")


def test_an_admin_client_that_makes_too_many_partitions_is_refused(
    broker: LocalBroker, admin: KnownClient
) -> None:
    set_quota(admin, EVERYBODY, controller_mutation_rate=1.0)
    client = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        client.create_topics([kafka_python.admin.NewTopic("first", 100, 1)])
        with pytest.raises(kafka_python.errors.KafkaError) as refused:
            client.create_topics([kafka_python.admin.NewTopic("second", 3, 1)])
        assert refused.value.errno == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert metric(broker, "throttled_mutation") >= 1
        assert broker.on_loop(lambda node: set(node.image.topics)) == {"first"}
    finally:
        client.close()
    set_quota(admin, EVERYBODY, controller_mutation_rate=None)
    another = kafka_python.KafkaAdminClient(
        bootstrap_servers=broker.bootstrap
    )  # the first one waits by itself
    try:
        another.create_topics([kafka_python.admin.NewTopic("second", 3, 1)])
    finally:
        another.close()


def test_an_admin_client_that_does_not_know_the_error_waits(broker: LocalBroker, admin: KnownClient) -> None:
    """As librdkafka's does not, which asks in an old version."""
    set_quota(admin, EVERYBODY, controller_mutation_rate=2.0)
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for name in ("first", "second"):
        client.create_topics([NewTopic(name, 3)])[name].result(DEADLINE_SECONDS)
    assert metric(broker, "throttled_mutation") >= 1
    assert broker.on_loop(lambda node: set(node.image.topics)) == {"first", "second"}


def test_clients_get_through_a_quota_of_connections(broker: LocalBroker, admin: KnownClient) -> None:
    create_topic(broker.bootstrap, "t")
    set_quota(admin, {"ip": "127.0.0.1"}, connection_creation_rate=3.0)
    patience = Patience("a connection is refused")
    while not metric(broker, "throttled_connection"):
        WireClient(broker.bootstrap).close()
        patience.check()
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0, **RECONNECTING}
    producers = [confluent_kafka.Producer(settings) for _ in range(3)]
    for number, producer in enumerate(producers):
        producer.produce("t", b"%d" % number)
    for producer in producers:
        assert producer.flush(DEADLINE_SECONDS) == 0
    assert broker.on_loop(lambda node: node.partitions.get("t", 0).log.end_offset) == 3


def test_kafka_python_reads_and_writes_the_messages_of_quotas(
    broker: LocalBroker, admin: KnownClient
) -> None:
    """It has them, with an encoder of its own, though no method of its admin client sends them."""
    from kafka.protocol.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest

    client = kafka_python.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        altering = AlterClientQuotasRequest(
            entries=[([("user", "ada"), ("client-id", None)], [("producer_byte_rate", 1000.0, False)])],
            validate_only=False,
        )
        altered = client._manager.run(client._manager.send, altering)
        assert [entry.error_code for entry in altered.entries] == [0]
        assert described(describe(admin)) == [
            ({"user": "ada", "client-id": None}, {"producer_byte_rate": 1000.0})
        ]
        asking = DescribeClientQuotasRequest(components=[("user", 0, "ada")], strict=False)
        answer = client._manager.run(client._manager.send, asking)
        (entry,) = answer.entries
        assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1000.0)]
    finally:
        with suppress(Exception):
            client.close()
