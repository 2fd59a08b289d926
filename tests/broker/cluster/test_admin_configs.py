"""Settings of topics and brokers, described and altered over a socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.config.keys.broker import BROKER_KEYS
from forebay.config.keys.topic import TOPIC_KEYS
from forebay.core.cluster.config_changes import AlterOp
from forebay.core.cluster.resources import ResourceType
from forebay.errors import ErrorCode
from forebay.wire.messages import alter_configs, incremental_alter_configs
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import local_broker
from support.clients.config_calls import describe, increment, replace, value_of
from support.clients.wire_client import WireClient

TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP
LOGGER = ResourceType.BROKER_LOGGER


@pytest.fixture
def client(broker: BrokerProcess, topic: str) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        make(client, topic)
        yield client


def make(client: WireClient, name: str) -> None:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    (result,) = client.call(CreateTopicsRequest(topics=[wanted]), 7).topics
    assert result.error_code == ErrorCode.NONE


# -- description -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_topic_setting_is_described(client: WireClient, topic: str, version: int) -> None:
    result = describe(client, TOPIC, topic, version=version)
    assert result.error_code == ErrorCode.NONE
    assert {config.name for config in result.configs} == set(TOPIC_KEYS)
    assert all(config.value is not None and not config.read_only for config in result.configs)
    if version >= 3:
        assert all(config.config_type and config.documentation for config in result.configs)


def test_every_broker_setting_is_described(broker: BrokerProcess, client: WireClient) -> None:
    result = describe(client, BROKER, "1")
    assert {config.name: config.read_only for config in result.configs} == {
        name: not definition.dynamic for name, definition in BROKER_KEYS.items()
    }


def test_addresses_are_described_as_they_are_in_force(tmp_path: Path) -> None:
    """A port that was left open has been chosen, and clients are told an address without being given one."""
    example = "PLAINTEXT://queue.example:7000"
    with (
        local_broker(tmp_path / "open") as open_port,
        local_broker(tmp_path / "told", {"advertised.listeners": example}) as told,
    ):
        for started, advertised, source in [
            (open_port, f"PLAINTEXT://{open_port.bootstrap}", 5),
            (told, example, 4),
        ]:
            with WireClient(started.bootstrap) as client:
                (listeners,) = describe(client, BROKER, "1", "listeners").configs
                assert (listeners.value, listeners.config_source) == (f"PLAINTEXT://{started.bootstrap}", 4)
                assert listeners.synonyms[0].value == "PLAINTEXT://127.0.0.1:0"
                assert value_of(client, BROKER, "1", "advertised.listeners") == (advertised, source)


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
        (LOGGER, "2", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (16, "metrics", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
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
    names = (topic, "missing", "twice", "twice")
    request = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name) for name in names
        ]
    )
    responses = client.call(request, 2).responses
    assert [(response.resource_name, response.error_code) for response in responses] == [
        (topic, ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("twice", ErrorCode.INVALID_REQUEST),
        ("twice", ErrorCode.INVALID_REQUEST),
    ]


def test_resources_of_all_kinds_stand_or_fall_alone(client: WireClient, topic: str) -> None:
    wanted = [
        (16, "metrics", "interval.ms", "1", ErrorCode.INVALID_REQUEST),
        (TOPIC, topic, "retention.ms", "5", ErrorCode.NONE),
        (BROKER, "1", "process.roles", "broker", ErrorCode.INVALID_REQUEST),
        (GROUP, topic, "consumer.session.timeout.ms", "50000", ErrorCode.NONE),
        (LOGGER, "1", "forebay.broker.produce.write_cycle", "LOUD", ErrorCode.INVALID_CONFIG),
    ]
    message = incremental_alter_configs
    request = message.IncrementalAlterConfigsRequest(
        resources=[
            message.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[message.AlterableConfig(name=key, config_operation=AlterOp.SET, value=value)],
            )
            for kind, name, key, value, _ in wanted
        ]
    )
    responses = client.call(request, 1).responses
    assert [response.error_code for response in responses] == [code for *_, code in wanted]
    assert responses[0].error_message.startswith("CLIENT_METRICS")
    assert value_of(client, TOPIC, topic, "retention.ms") == ("5", 1)
    assert value_of(client, GROUP, topic, "consumer.session.timeout.ms") == ("50000", 8)


def test_settings_without_effect_are_kept_and_say_so(client: WireClient, topic: str) -> None:
    for kind, name, key, value, source in [
        (TOPIC, topic, "flush.ms", "0", 1),
        (GROUP, topic, "streams.num.standby.replicas", "1", 8),
    ]:
        assert increment(client, kind, name, (key, AlterOp.SET, value)).error_code == ErrorCode.NONE
        (config,) = describe(client, kind, name, key).configs
        assert (config.value, config.config_source) == (value, source)
        assert "without effect" in config.documentation


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
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "starts" in response.error_message


def test_a_setting_that_no_broker_knows_is_kept_with_a_warning(fresh_broker: BrokerProcess) -> None:
    name = "my.plugin.level"
    with WireClient(fresh_broker.bootstrap) as client:
        for resource, source in (("1", 2), ("", 3)):
            assert increment(client, BROKER, resource, (name, AlterOp.SET, "secret?")).error_code == 0
            (config,) = describe(client, BROKER, resource, name).configs
            assert (config.value, config.is_sensitive, config.config_source) == (None, True, source)
            assert "without effect" in config.documentation
        assert f"no broker knows the setting {name}" in fresh_broker.log()
        assert increment(client, BROKER, "1", (name, AlterOp.DELETE, None)).error_code == 0
        (config,) = describe(client, BROKER, "1", name).configs
        assert config.config_source == 3
        assert (
            increment(client, BROKER, "1", ("sasl.kerberos.service.name", AlterOp.SET, "k")).error_code == 0
        )
        (config,) = describe(client, BROKER, "1", "sasl.kerberos.service.name").configs
        assert config.value == "k" and "without effect" in config.documentation
    fresh_broker.kill()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        assert describe(client, BROKER, "", name).configs, "what is kept does not hinder a start"


def test_throttles_go_as_kafka_reassign_partitions_deletes_them(fresh_broker: BrokerProcess) -> None:
    """It deletes these three settings of each broker in one request, whether it has set them or not."""
    rates = [
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    ]
    deletions = [(name, AlterOp.DELETE, None) for name in (*rates, "of.another.version")]
    with WireClient(fresh_broker.bootstrap) as client:
        for name in rates:
            assert increment(client, BROKER, "1", (name, AlterOp.SET, "1000")).error_code == ErrorCode.NONE
            assert value_of(client, BROKER, "1", name) == ("1000", 2)
        for _ in range(2):
            assert increment(client, BROKER, "1", *deletions).error_code == ErrorCode.NONE
        assert all(value_of(client, BROKER, "1", name)[1] == 5 for name in rates)


def test_a_broker_is_meant_however_its_number_is_written(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        make(client, topic)
        increment(client, BROKER, "01", ("log.retention.ms", AlterOp.SET, "5000"))
        assert value_of(client, TOPIC, topic, "retention.ms") == ("5000", 2)
        assert value_of(client, BROKER, "001", "log.retention.ms") == ("5000", 2)


def test_settings_of_all_brokers_are_synonyms_of_their_own(fresh_broker: BrokerProcess) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        increment(client, BROKER, "", ("log.segment.bytes", AlterOp.SET, "6000"))
        (config,) = describe(client, BROKER, "").configs
        assert (config.name, config.value, config.config_source) == ("log.segment.bytes", "6000", 3)
        (synonym,) = config.synonyms
        assert (synonym.name, synonym.value, synonym.source) == ("log.segment.bytes", "6000", 3)
