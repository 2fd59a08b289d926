"""A name is what was asked for, wherever it is written: white space around it passes no rule."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.acls.bindings import CLUSTER_NAME, AclBinding, Operation, PatternType, Permission
from forebay.core.cluster.image import ALL_BROKERS
from forebay.core.cluster.image_changes import ConfigOwner
from forebay.errors import ErrorCode
from forebay.wire.fields import Request
from forebay.wire.messages import alter_configs
from forebay.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from forebay.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from forebay.wire.messages.create_acls import AclCreation, CreateAclsRequest
from forebay.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.access.principals import ACLS_VERSION, KnownClient, add_acls
from support.access.rules import DENIED, C, G, T, allow, deny, make
from support.brokers.local_broker import LocalBroker
from support.clients.wire_client import create_topic

DEAD_LETTERS = "errors.deadletterqueue.topic.name"
GROUP = 32
SPACES = [" ", "\t", "\n", "\u00a0", "\u2003", "\x1c"]
"""Each of them is white space to the settings of a group."""


def incremental(group: str, topic: str) -> Request:
    config = AlterableConfig(name=DEAD_LETTERS, config_operation=0, value=topic)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource])


def replacing(group: str, topic: str) -> Request:
    config = alter_configs.AlterableConfig(name=DEAD_LETTERS, value=topic)
    resource = alter_configs.AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[config])
    return alter_configs.AlterConfigsRequest(resources=[resource])


@pytest.mark.parametrize("space", SPACES, ids=ascii)
@pytest.mark.parametrize(("ask", "version"), [(incremental, 1), (replacing, 2)])
def test_a_denied_dead_letter_topic_is_denied_with_white_space_around_it(
    admin: KnownClient, ada: KnownClient, guarded: LocalBroker, ask: Any, version: int, space: str
) -> None:
    if "audit" not in guarded.on_loop(lambda node: node.image.topics):
        make(admin, "audit")
    add_acls(
        admin,
        [
            allow(Operation.ALL, "*"),
            allow(Operation.ALTER_CONFIGS, "c-group", G),
            deny(Operation.WRITE, "audit"),
        ],
    )
    for written in ("audit", f"{space}audit", f"audit{space}", f"{space}{space}audit{space}"):
        (answer,) = ada.call(ask("c-group", written), version).responses
        assert answer.error_code == DENIED, written
    settings = guarded.on_loop(lambda node: node.image.config(ConfigOwner.GROUP, "c-group").overrides)
    assert DEAD_LETTERS not in settings


def test_a_dead_letter_topic_is_stored_as_it_is_used(admin: KnownClient, guarded: LocalBroker) -> None:
    (answer,) = admin.call(incremental("s-group", " letters\t"), 1).responses
    assert answer.error_code == ErrorCode.NONE
    settings = guarded.on_loop(lambda node: node.image.config(ConfigOwner.GROUP, "s-group").overrides)
    assert settings[DEAD_LETTERS] == "letters"


def test_the_settings_of_topics_and_brokers_are_stored_without_white_space_around_them(
    admin: KnownClient, guarded: LocalBroker
) -> None:
    topic = CreatableTopic(
        name="trimmed",
        num_partitions=1,
        replication_factor=1,
        configs=[CreatableTopicConfig(name="retention.ms", value=" 5000 ")],
    )
    (made,) = admin.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    assert made.error_code == ErrorCode.NONE
    prefix = AlterableConfig(name=f"{DEAD_LETTERS}.prefix", config_operation=0, value=" dlq. ")
    brokers = AlterConfigsResource(resource_type=4, resource_name="", configs=[prefix])
    try:
        (altered,) = admin.call(IncrementalAlterConfigsRequest(resources=[brokers]), 1).responses
        assert altered.error_code == ErrorCode.NONE
        stored = guarded.on_loop(
            lambda node: (
                node.image.topic_config("trimmed").overrides,
                node.image.broker_config(ALL_BROKERS).overrides,
            )
        )
        assert stored[0]["retention.ms"] == "5000" and stored[1][f"{DEAD_LETTERS}.prefix"] == "dlq."
    finally:
        prefix.config_operation = 1
        admin.call(IncrementalAlterConfigsRequest(resources=[brokers]), 1)


@pytest.mark.parametrize("space", SPACES, ids=ascii)
def test_a_view_of_a_denied_topic_is_denied_with_white_space_around_its_source(
    admin: KnownClient, ada: KnownClient, guarded: LocalBroker, space: str
) -> None:
    if "hidden" not in guarded.on_loop(lambda node: node.image.topics):
        make(admin, "hidden")
    add_acls(admin, [allow(Operation.ALL, "*"), deny(Operation.READ, "hidden")])
    for source in (f"{space}hidden", f"hidden{space}"):
        configs = [CreatableTopicConfig(name="forebay.view.source", value=source)]
        view = CreatableTopic(name="peep", num_partitions=-1, replication_factor=-1, configs=configs)
        (answer,) = ada.call(CreateTopicsRequest(topics=[view], timeout_ms=10_000), 7).topics
        assert answer.error_code == DENIED, source


def test_a_topic_or_view_cannot_have_white_space_in_its_name(admin: KnownClient) -> None:
    for name in (" orders", "orders ", "or ders"):
        (answer,) = admin.call(create_topic(name), 7).topics
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- rules -------------------------------------------------------------------------------------------------


def created(admin: KnownClient, acl: AclBinding) -> Any:
    creation = AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
    (result,) = admin.call(CreateAclsRequest(creations=[creation]), ACLS_VERSION).results
    return result


@pytest.mark.parametrize("principal", [" User:ada", "User: ada", "User:ada ", "User :ada", "User:ada\u00a0"])
def test_a_rule_for_a_principal_that_nobody_can_be_is_refused(admin: KnownClient, principal: str) -> None:
    """A DENY for "User:ada " would deny nobody anything."""
    result = created(admin, allow(Operation.READ, "t", principal=principal))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "white space" in result.error_message


@pytest.mark.parametrize("name", [" audit", "audit ", "audit\n"])
@pytest.mark.parametrize("pattern", [PatternType.LITERAL, PatternType.PREFIXED])
def test_a_rule_for_a_topic_that_cannot_be_is_refused(
    admin: KnownClient, name: str, pattern: PatternType
) -> None:
    result = created(admin, AclBinding(T, pattern, name, "User:ada", "*", Operation.WRITE, Permission.DENY))
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "white space" in result.error_message


def test_a_group_may_have_white_space_around_its_name_and_is_another_group_then(
    admin: KnownClient, ada: KnownClient
) -> None:
    """Groups may have any name, as in Kafka: so it is taken as it is, everywhere."""
    assert created(admin, allow(Operation.ALTER_CONFIGS, " g", G)).error_code == ErrorCode.NONE
    add_acls(admin, [allow(Operation.ALL, "letters")])
    assert ada.call(incremental(" g", "letters"), 1).responses[0].error_code == ErrorCode.NONE
    refused = ada.call(incremental("g", "letters"), 1).responses[0].error_code
    assert refused == ErrorCode.GROUP_AUTHORIZATION_FAILED


# -- users and quotas --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [" admin", "admin ", "admin\u00a0"])
def test_no_user_is_added_whose_name_looks_like_that_of_another(admin: KnownClient, name: str) -> None:
    new = ScramCredentialUpsertion(
        name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    (result,) = admin.call(AlterUserScramCredentialsRequest(upsertions=[new]), 0).results
    assert result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    gone = ScramCredentialDeletion(name=name, mechanism=1)
    (result,) = admin.call(AlterUserScramCredentialsRequest(deletions=[gone]), 0).results
    assert result.error_code == (
        ErrorCode.RESOURCE_NOT_FOUND if name.isprintable() else ErrorCode.UNACCEPTABLE_CREDENTIAL
    ), "one that is there from before can be deleted"


def alter_quota(admin: KnownClient, kind: str, name: str, *, remove: bool = False) -> Any:
    key = "connection_creation_rate" if kind == "ip" else "producer_byte_rate"
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name)],
        ops=[OpData(key=key, value=1000.0, remove=remove)],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (result,) = admin.call(request, 1).entries
    return result


def test_a_quota_for_a_user_that_nobody_can_be_is_refused(admin: KnownClient) -> None:
    result = alter_quota(admin, "user", "ada ")
    assert result.error_code == ErrorCode.INVALID_REQUEST and "white space" in result.error_message
    assert alter_quota(admin, "user", "ada ", remove=True).error_code == ErrorCode.NONE
    assert alter_quota(admin, "client-id", "any id ").error_code == ErrorCode.NONE


def test_a_quota_of_an_address_is_kept_as_connections_have_it(
    admin: KnownClient, guarded: LocalBroker
) -> None:
    result = alter_quota(admin, "ip", "::FFFF:10.1.2.3")
    assert result.error_code == ErrorCode.NONE
    assert result.entity[0].entity_name == "::FFFF:10.1.2.3", "Java's client looks for what it has sent"
    names = guarded.on_loop(lambda node: [str(quota.entity) for quota in node.image.quotas.values()])
    assert "ip 10.1.2.3" in names


def test_the_cluster_has_one_name(admin: KnownClient) -> None:
    assert (
        created(admin, allow(Operation.ALTER, f"{CLUSTER_NAME} ", C)).error_code == ErrorCode.INVALID_REQUEST
    )
