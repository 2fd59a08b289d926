"""Settings of groups and levels of loggers, which stand beside those of topics and brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from forebay.config.group_settings import GROUP_RESOURCE_KEYS
from forebay.core.cluster.config_changes import AlterOp
from forebay.core.cluster.resources import ResourceType
from forebay.errors import ErrorCode
from forebay.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from support.brokers.broker_process import BrokerProcess
from support.clients.config_calls import describe, increment, replace, value_of
from support.clients.wire_client import WireClient, create

GROUP, LOGGER = ResourceType.GROUP, ResourceType.BROKER_LOGGER
NOT_YET = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
SECONDS = 120.0
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


# -- groups ------------------------------------------------------------------------------------------------


def heartbeat(client: WireClient, group_id: str, topic: str) -> Any:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id="member-of-the-test-group",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    deadline = time.monotonic() + SECONDS
    while True:
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]), 4)
        response = client.call(request, 1)
        if response.error_code not in NOT_YET or time.monotonic() > deadline:
            assert response.error_code == ErrorCode.NONE
            return response


def test_every_setting_of_a_group_is_described(client: WireClient, topic: str) -> None:
    result = describe(client, GROUP, topic)
    assert {config.name for config in result.configs} == set(GROUP_RESOURCE_KEYS)
    assert all(config.config_source == 5 and not config.read_only for config in result.configs)
    assert all(config.documentation for config in result.configs)


def test_a_groups_heartbeat_follows_its_settings(client: WireClient, topic: str) -> None:
    create(client, topic)
    group_id = f"group/of {topic}"
    assert heartbeat(client, group_id, topic).heartbeat_interval_ms == 5_000
    changes = [(SESSION, AlterOp.SET, "9000"), (HEARTBEAT, AlterOp.SET, "700")]
    assert increment(client, GROUP, group_id, *changes).error_code == ErrorCode.NONE
    assert value_of(client, GROUP, group_id, SESSION) == ("9000", 8)
    assert heartbeat(client, group_id, topic).heartbeat_interval_ms == 700
    assert heartbeat(client, f"other of {topic}", topic).heartbeat_interval_ms == 5_000
    assert replace(client, GROUP, group_id).error_code == ErrorCode.NONE
    assert heartbeat(client, group_id, topic).heartbeat_interval_ms == 5_000


def test_settings_of_a_group_survive(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, topic)
        increment(client, GROUP, "g", (HEARTBEAT, AlterOp.SET, "700"))
    fresh_broker.kill()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        assert heartbeat(client, "g", topic).heartbeat_interval_ms == 700


def test_what_the_broker_does_not_allow_is_refused(client: WireClient, topic: str) -> None:
    response = increment(client, GROUP, topic, (SESSION, AlterOp.SET, "61000"))
    assert response.error_code == ErrorCode.INVALID_CONFIG
    assert "group.consumer.max.session.timeout.ms" in response.error_message


# -- loggers -----------------------------------------------------------------------------------------------


def levels(client: WireClient) -> dict[str, str]:
    result = describe(client, LOGGER, "1")
    assert result.error_code == ErrorCode.NONE
    assert all(config.config_source == 6 and not config.read_only for config in result.configs)
    return {config.name: config.value for config in result.configs}


def test_levels_are_set_and_deleted(fresh_broker: BrokerProcess) -> None:
    name = "forebay.broker.net.connection"
    with WireClient(fresh_broker.bootstrap) as client:
        assert set(levels(client).values()) == {"INFO"}
        assert increment(client, LOGGER, "1", (name, AlterOp.SET, "TRACE")).error_code == ErrorCode.NONE
        assert increment(client, LOGGER, "01", ("root", AlterOp.SET, "FATAL")).error_code == ErrorCode.NONE
        found = levels(client)
        assert (found.pop(name), set(found.values())) == ("TRACE", {"FATAL"})
        assert increment(client, LOGGER, "1", (name, AlterOp.DELETE, None)).error_code == ErrorCode.NONE
        assert set(levels(client).values()) == {"FATAL"}


def test_only_validating_a_level_changes_nothing(client: WireClient) -> None:
    before = levels(client)
    change = ("root", AlterOp.SET, "DEBUG")
    assert increment(client, LOGGER, "1", change, validate_only=True).error_code == ErrorCode.NONE
    assert levels(client) == before


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("root", AlterOp.SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("root", AlterOp.SET, None), ErrorCode.INVALID_CONFIG),
        (("forebay.nowhere", AlterOp.SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("asyncio", AlterOp.SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("forebay.nowhere", AlterOp.DELETE, None), ErrorCode.INVALID_CONFIG),
        (("root", AlterOp.DELETE, None), ErrorCode.INVALID_REQUEST),
        (("root", AlterOp.APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_no_level_changes_nothing(
    client: WireClient, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    before = levels(client)
    good = ("forebay.broker.net.connection", AlterOp.SET, "DEBUG")
    response = increment(client, LOGGER, "1", good, change)
    assert response.error_code == code
    assert response.error_message
    assert levels(client) == before


def test_loggers_are_not_replaced_all_at_once(client: WireClient) -> None:
    assert replace(client, LOGGER, "1").error_code == ErrorCode.INVALID_REQUEST
