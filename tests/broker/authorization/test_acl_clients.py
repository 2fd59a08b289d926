"""ACLs as the clients of others see them: their admin calls, and what producers and consumers are told."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from forebay.core.acls.bindings import CLUSTER_NAME, Operation
from forebay.core.acls.bindings import ResourceType as Kind
from support.access.principals import KnownClient, add_acls, delete_acl
from support.access.rules import allow, deny, make
from support.brokers.local_broker import LocalBroker
from support.waiting import Patience

with warnings.catch_warnings(action="ignore"):
    # kafka-python reads its schemas by a deprecated call when it is imported.
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        KafkaAdminClient,
        ResourcePattern,
        ResourcePatternFilter,
    )
    from kafka.admin import ACLResourcePatternType as PatternType
    from kafka.admin import ResourceType as PythonResourceType
    from kafka.errors import ClusterAuthorizationFailedError

SECONDS = 60
ANONYMOUS = "User:ANONYMOUS"
ADMINISTRATION = allow(Operation.ALTER, CLUSTER_NAME, Kind.CLUSTER, principal=ANONYMOUS)


@pytest.fixture
def administrator(admin: KnownClient) -> Iterator[None]:
    """Those who have not logged in may alter ACLs."""
    add_acls(admin, [ADMINISTRATION])
    yield
    delete_acl(admin, ADMINISTRATION)


def rule(name: str, operation: AclOperation = AclOperation.READ) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        name,
        ResourcePatternType.PREFIXED,
        "User:bob",
        "10.0.0.0/8",
        operation,
        AclPermissionType.DENY,
    )


def wanted_filter(
    name: str | None = None,
    principal: str | None = None,
    pattern: ResourcePatternType = ResourcePatternType.ANY,
) -> AclBindingFilter:
    nothing: Any = None  # its types do not say that it may be missing
    return AclBindingFilter(
        ResourceType.ANY,
        name or nothing,
        pattern,
        principal or nothing,
        nothing,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )


@pytest.mark.usefixtures("administrator")
def test_confluent_creates_finds_and_deletes_rules(guarded: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    wanted = [rule("conf-a"), rule("conf-b", AclOperation.ALL)]
    for _ in range(2):
        for future in admin.create_acls(wanted).values():
            future.result(SECONDS)
    every = wanted_filter(name="conf-all-that-follows", pattern=ResourcePatternType.MATCH)
    found = admin.describe_acls(every).result(SECONDS)
    assert found == [wanted[0]]
    mine = wanted_filter(principal="User:bob")
    assert sorted(admin.describe_acls(mine).result(SECONDS), key=lambda acl: acl.name) == wanted
    (deleted,) = (future.result(SECONDS) for future in admin.delete_acls([mine]).values())
    assert sorted(deleted, key=lambda acl: acl.name) == wanted
    assert admin.describe_acls(mine).result(SECONDS) == []


@pytest.mark.usefixtures("administrator")
def test_what_cannot_be_a_rule_is_refused_alone(guarded: LocalBroker) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    wrong = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "bob",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    right = rule("conf-right")
    futures = admin.create_acls([wrong, right])
    futures[right].result(SECONDS)
    with pytest.raises(KafkaException, match="no principal") as caught:
        futures[wrong].result(SECONDS)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST


@pytest.mark.usefixtures("administrator")
def test_kafka_python_creates_finds_and_deletes_rules(guarded: LocalBroker) -> None:
    wanted = ACL(
        principal="User:eve",
        host="*",
        operation=ACLOperation.WRITE,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=ResourcePattern(PythonResourceType.GROUP, "kp", PatternType.LITERAL),
    )
    mine = ACLFilter(
        principal="User:eve",
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(PythonResourceType.ANY, None, PatternType.ANY),
    )
    with closing(KafkaAdminClient(bootstrap_servers=guarded.bootstrap)) as admin:
        made = admin.create_acls([wanted])
        assert (made["succeeded"], made["failed"]) == ([wanted], [])
        found, _ = admin.describe_acls(mine)
        assert found == [wanted]
        ((_, deleted, _),) = admin.delete_acls([mine])
        assert deleted == [wanted]


def test_who_may_not_administer_is_refused(guarded: LocalBroker) -> None:
    confluent = AdminClient({"bootstrap.servers": guarded.bootstrap})
    for future in confluent.create_acls([rule("x")]).values():
        with pytest.raises(KafkaException) as caught:
            future.result(SECONDS)
        assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    everything = ACLFilter(
        principal=None,
        host=None,
        operation=ACLOperation.ANY,
        permission_type=ACLPermissionType.ANY,
        resource_pattern=ResourcePatternFilter(PythonResourceType.ANY, None, PatternType.ANY),
    )
    with (
        closing(KafkaAdminClient(bootstrap_servers=guarded.bootstrap)) as admin,
        pytest.raises(ClusterAuthorizationFailedError),
    ):
        admin.describe_acls(everything)


def test_a_producer_is_told_that_it_may_not_write_and_goes_on_when_it_may(
    guarded: LocalBroker, admin: KnownClient
) -> None:
    make(admin, "told")
    add_acls(admin, [allow(Operation.WRITE, "told", principal=ANONYMOUS)])
    outcomes: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": guarded.bootstrap,
            "enable.idempotence": True,
            "topic.metadata.refresh.interval.ms": 200,
        }
    )

    def send() -> KafkaError | None:
        try:
            producer.produce("told", b"v", on_delivery=lambda error, _: outcomes.append(error))
        except KafkaException as known:  # it remembers that it may not, until it has looked again
            error: KafkaError = known.args[0]
            return error
        assert producer.flush(SECONDS) == 0
        return outcomes[-1]

    assert send() is None
    denial = replace(deny(Operation.WRITE, "told"), principal=ANONYMOUS)
    add_acls(admin, [denial])
    error = send()
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    delete_acl(admin, denial)
    patience = Patience("the producer may write again")
    while send() is not None:
        patience.check(outcomes[-1])
        producer.poll(0.1)


def test_a_consumer_is_told_which_of_its_rights_is_missing(guarded: LocalBroker, admin: KnownClient) -> None:
    make(admin, "heard")
    settings = {
        "bootstrap.servers": guarded.bootstrap,
        "group.id": "hearers",
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
    }
    assert _first_error(settings) == KafkaError.GROUP_AUTHORIZATION_FAILED
    add_acls(admin, [allow(Operation.READ, "hearers", Kind.GROUP, principal=ANONYMOUS)])
    assert _first_error(settings) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    add_acls(admin, [allow(Operation.READ, "heard", principal=ANONYMOUS)])
    add_acls(admin, [allow(Operation.WRITE, "heard", principal=ANONYMOUS)])
    producer = Producer({"bootstrap.servers": guarded.bootstrap})
    producer.produce("heard", b"v")
    assert producer.flush(SECONDS) == 0
    assert _first_error(settings) is None


def _first_error(settings: dict[str, object]) -> int | None:
    """The first error that a consumer is told; None if it gets a message first."""
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["heard"])
        patience = Patience("the consumer is told something")
        while True:
            message = consumer.poll(0.2)
            patience.check()
            if message is not None:
                error = message.error()
                return None if error is None else int(error.code())
    finally:
        consumer.close()
