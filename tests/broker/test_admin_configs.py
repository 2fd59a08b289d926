"""Settings of topics and brokers, described and altered over a socket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay.config.broker_keys import BROKER_KEYS
from forebay.config.topic_keys import TOPIC_KEYS
from forebay.core.settings import AlterOp, ResourceType
from forebay.errors import ErrorCode
from forebay.wire.messages import alter_configs, incremental_alter_configs
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from forebay.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import WireClient

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


@pytest.fixture
def client(broker: BrokerProcess, topic: str) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        make(client, topic)
        yield client


def make(client: WireClient, name: str) -> None:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (result,) = client.call(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert result.error_code == ErrorCode.NONE


def describe(
    client: WireClient, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True
) -> Any:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=version >= 3,
    )
    (result,) = client.call(request, version).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def value_of(client: WireClient, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = describe(client, kind, name, key).configs
    return config.value, config.config_source


def increment(
    client: WireClient,
    kind: int,
    name: str,
    *changes: tuple[str, int, str | None],
    version: int = 1,
    validate_only: bool = False,
) -> Any:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=op, value=value)
            for key, op, value in changes
        ],
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    (response,) = client.call(request, version).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response


def replace(client: WireClient, kind: int, name: str, version: int = 2, **configs: str | None) -> Any:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    (response,) = client.call(alter_configs.AlterConfigsRequest(resources=[resource]), version).responses
    return response


# -- description -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_topic_setting_is_described(client: WireClient, topic: str, version: int) -> None:
    result = describe(client, TOPIC, topic, version=version)
    assert result.error_code == ErrorCode.NONE
    assert {config.name for config in result.configs} == set(TOPIC_KEYS)
    assert all(config.value is not None and not config.read_only for config in result.configs)
    if version >= 3:
        assert all(config.config_type and config.documentation for config in result.configs)


def test_every_broker_setting_is_described(client: WireClient) -> None:
    result = describe(client, BROKER, "1")
    assert {config.name: config.read_only for config in result.configs} == {
        name: not definition.dynamic for name, definition in BROKER_KEYS.items()
    }
    (listeners,) = [config for config in result.configs if config.name == "listeners"]
    assert (listeners.value, listeners.config_source) == ("PLAINTEXT://127.0.0.1:0", 4)


def test_synonyms_say_where_a_value_comes_from(client: WireClient, topic: str) -> None:
    increment(client, TOPIC, topic, ("retention.ms", AlterOp.SET, "77"))
    (config,) = describe(client, TOPIC, topic, "retention.ms").configs
    assert (config.value, config.config_source) == ("77", 1)
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("retention.ms", "77", 1),
        ("log.retention.hours", "336", 5),
    ]
    (bare,) = describe(client, TOPIC, topic, "retention.ms", synonyms=False).configs
    assert bare.synonyms == []


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(client: WireClient, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(client, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert result.error_message


# -- alteration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_single_settings_change(client: WireClient, topic: str, version: int) -> None:
    changes: list[tuple[str, int, str | None]]
    changes = [("retention.ms", AlterOp.SET, "60000"), ("cleanup.policy", AlterOp.APPEND, "compact")]
    assert increment(client, TOPIC, topic, *changes, version=version).error_code == ErrorCode.NONE
    assert value_of(client, TOPIC, topic, "retention.ms") == ("60000", 1)
    assert value_of(client, TOPIC, topic, "cleanup.policy") == ("delete,compact", 1)
    changes = [("retention.ms", AlterOp.DELETE, None), ("cleanup.policy", AlterOp.SUBTRACT, "compact")]
    assert increment(client, TOPIC, topic, *changes, version=version).error_code == ErrorCode.NONE
    assert value_of(client, TOPIC, topic, "retention.ms") == ("1209600000", 5)
    assert value_of(client, TOPIC, topic, "cleanup.policy") == ("delete", 1)


def test_only_validating_changes_nothing(client: WireClient, topic: str) -> None:
    change = ("retention.ms", AlterOp.SET, "60000")
    assert increment(client, TOPIC, topic, change, validate_only=True).error_code == ErrorCode.NONE
    assert value_of(client, TOPIC, topic, "retention.ms") == ("1209600000", 5)
    wrong = increment(client, TOPIC, topic, ("retention.ms", AlterOp.SET, "soon"), validate_only=True)
    assert wrong.error_code == ErrorCode.INVALID_CONFIG


def test_all_or_nothing_within_a_resource(client: WireClient, topic: str) -> None:
    changes = [("retention.ms", AlterOp.SET, "60000"), ("segment.bytes", AlterOp.SET, "-1")]
    response = increment(client, TOPIC, topic, *changes)
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert "segment.bytes" in response.error_message
    assert value_of(client, TOPIC, topic, "retention.ms") == ("1209600000", 5)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_replacing_resets_what_is_not_named(client: WireClient, topic: str, version: int) -> None:
    assert replace(client, TOPIC, topic, version, retention_ms="1", segment_ms="2").error_code == 0
    assert replace(client, TOPIC, topic, version, segment_ms="3").error_code == 0
    assert value_of(client, TOPIC, topic, "retention.ms") == ("1209600000", 5)
    assert value_of(client, TOPIC, topic, "segment.ms") == ("3", 1)
    assert replace(client, TOPIC, topic, version, segment_ms=None).error_code == ErrorCode.INVALID_REQUEST


def test_each_resource_has_its_own_result(client: WireClient, topic: str) -> None:
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name)
            for name in (topic, "missing")
        ]
    )
    responses = client.call(request, 2).responses
    assert [response.error_code for response in responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


# -- settings of a running broker --------------------------------------------------------------------------


def test_a_broker_setting_reaches_its_topics_and_survives(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        make(client, topic)
        own = increment(client, BROKER, "1", ("log.retention.ms", AlterOp.SET, "5000"))
        common = increment(client, BROKER, "", ("log.segment.bytes", AlterOp.SET, "6000"))
        assert (own.error_code, common.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert value_of(client, TOPIC, topic, "retention.ms") == ("5000", 2)
        assert value_of(client, TOPIC, topic, "segment.bytes") == ("6000", 3)
        assert value_of(client, BROKER, "", "log.segment.bytes") == ("6000", 3)
    fresh_broker.kill()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        assert value_of(client, TOPIC, topic, "retention.ms") == ("5000", 2)
        assert value_of(client, BROKER, "1", "log.segment.bytes") == ("6000", 3)
        increment(client, BROKER, "1", ("log.retention.ms", AlterOp.DELETE, None))
        assert value_of(client, TOPIC, topic, "retention.ms") == ("1209600000", 5)


def test_what_is_read_at_start_cannot_be_altered(client: WireClient) -> None:
    response = increment(client, BROKER, "1", ("log.dirs", AlterOp.SET, "/elsewhere"))
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert "starts" in response.error_message
