"""Three brokers that speak nothing but mutual TLS, with ACLs: who may do what is said by certificates."""

from __future__ import annotations

import asyncio
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from support.brokers.local_cluster import local_cluster
from support.brokers.tls_files import TlsFiles

TIMEOUT_S = 60


async def test_certificates_say_who_may_do_what(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "tls")
    settings = {
        **files.broker_settings(client_auth="required"),
        "authorizer.class.name": "acl",
        "super.users": "User:CN=broker;User:CN=admin",
    }
    async with local_cluster(tmp_path / "data", settings) as cluster:
        host, port = cluster[1].server.addresses["SSL"]
        await asyncio.to_thread(_converse, f"{host}:{port}", files)


def _converse(bootstrap: str, files: TlsFiles) -> None:
    admin = AdminClient(files.librdkafka(bootstrap, files.issue("admin")))
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(TIMEOUT_S)
    ada = files.librdkafka(bootstrap, files.client)
    assert _sent(ada) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    _allow(admin, "User:CN=ada,OU=people", ResourceType.TOPIC, "orders", AclOperation.WRITE)
    assert _sent(ada) is None
    bob = files.librdkafka(bootstrap, files.issue("bob"))
    _allow(admin, "User:CN=bob", ResourceType.GROUP, "billing", AclOperation.READ)
    _allow(admin, "User:CN=bob", ResourceType.TOPIC, "orders", AclOperation.READ)
    assert _sent(bob) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert _received(bob) == b"an order"


def _allow(
    admin: AdminClient, principal: str, kind: ResourceType, name: str, operation: AclOperation
) -> None:
    rule = AclBinding(
        kind, name, ResourcePatternType.LITERAL, principal, "*", operation, AclPermissionType.ALLOW
    )
    admin.create_acls([rule])[rule].result(TIMEOUT_S)


def _sent(settings: dict[str, str]) -> int | None:
    """The code of the error, if it was refused."""
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "acks": "all", "log_level": "0"})
    producer.produce("orders", b"an order", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    return None if errors[0] is None else errors[0].code()


def _received(settings: dict[str, str]) -> bytes | None:
    consumer = Consumer({**settings, "group.id": "billing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None
        return message.value()
    finally:
        consumer.close()
