"""Creating, growing and deleting topics, over a socket, in the oldest and the newest version served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.config.keys.topic import TOPIC_KEYS
from forebay.errors import ErrorCode
from forebay.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from forebay.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_cluster import eventually, local_cluster
from support.clients.wire_client import WireClient, create_topic

CREATE_VERSIONS = [2, 4, 5, 7]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def creatable(name: str, partitions: int = 1, replicas: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def create(client: WireClient, *topics: CreatableTopic, version: int = 7, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return client.call(request, version).topics


def described(client: WireClient, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = client.call(request, 12).topics
    return topic


@pytest.mark.parametrize("name", ["", None, "another"])
def test_a_topic_id_decides_whatever_the_name_is(client: WireClient, topic: str, name: str | None) -> None:
    """Java's client sends an empty name with the id."""
    create(client, creatable(topic))
    by_name = described(client, topic)
    for version in (12, 13):
        wanted = [
            MetadataRequestTopic(topic_id=by_name.topic_id, name=name),
            MetadataRequestTopic(topic_id=bytes(15) + b"\x09", name=name),
        ]
        found, unknown = client.call(MetadataRequest(topics=wanted), version).topics
        assert (found.name, found.error_code, len(found.partitions)) == (topic, ErrorCode.NONE, 1)
        assert (unknown.name, unknown.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
        assert unknown.topic_id == bytes(15) + b"\x09"
    assert described(client, "another").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [10, 11])
def test_versions_that_know_names_only_refuse_ids(client: WireClient, topic: str, version: int) -> None:
    create(client, creatable(topic))
    topic_id = described(client, topic).topic_id
    for wanted in (MetadataRequestTopic(topic_id=topic_id, name=topic), MetadataRequestTopic(name=None)):
        (answer,) = client.call(MetadataRequest(topics=[wanted]), version).topics
        assert (answer.error_code, answer.name) == (ErrorCode.INVALID_REQUEST, wanted.name or "")


@pytest.mark.parametrize("name", ["", ".", "a/b", "ä", "x" * 250])
def test_a_name_that_no_topic_can_have_is_no_unknown_topic(client: WireClient, name: str) -> None:
    assert described(client, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    asked = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)], response_partition_limit=1)
    (answer,) = client.call(asked, 0).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- creation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_a_created_topic_is_there_at_once(client: WireClient, topic: str, version: int) -> None:
    (result,) = create(client, creatable(topic, 3, retention_ms="5000"), version=version)
    assert (result.name, result.error_code, result.error_message) == (topic, ErrorCode.NONE, None)
    found = described(client, topic)
    assert found.error_code == ErrorCode.NONE
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in found.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
        (2, 1, [1]),
    ]
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        configs = {config.name: (config.value, config.config_source) for config in result.configs}
        assert configs["retention.ms"] == ("5000", 1)
        assert configs["cleanup.policy"] == ("delete", 5)
        assert set(configs) == set(TOPIC_KEYS)
    if version >= 7:
        assert result.topic_id == found.topic_id != bytes(16)


def test_counts_may_be_left_to_the_broker(client: WireClient, topic: str) -> None:
    (result,) = create(client, creatable(topic, -1, -1))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (ErrorCode.NONE, 1, 1)


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_only_validating_creates_nothing(client: WireClient, topic: str, version: int) -> None:
    (result,) = create(client, creatable(topic, 4), version=version, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    if version >= 5:
        assert result.num_partitions == 4
    assert described(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (result,) = create(client, creatable(topic, 0), version=version, validate_only=True)
    assert result.error_code == ErrorCode.INVALID_PARTITIONS


def test_one_that_cannot_be_does_not_stop_the_others(client: WireClient, topic: str) -> None:
    names = [f"{topic}-a", f"{topic}-b", f"{topic}/c", f"{topic}-d", f"{topic}-d"]
    create(client, creatable(names[0]))
    results = create(client, *(creatable(name) for name in names))
    assert {result.name: result.error_code for result in results} == {
        names[0]: ErrorCode.TOPIC_ALREADY_EXISTS,
        names[1]: ErrorCode.NONE,
        names[2]: ErrorCode.INVALID_TOPIC_EXCEPTION,
        names[3]: ErrorCode.INVALID_REQUEST,
    }
    assert len(results) == 4
    assert described(client, names[3]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"retention_ms": "never"}, ErrorCode.INVALID_CONFIG),
        ({"retention_ms": None}, ErrorCode.INVALID_CONFIG),
        ({"bananas": "1"}, ErrorCode.INVALID_CONFIG),
        ({"replicas": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"partitions": 10_001}, ErrorCode.INVALID_PARTITIONS),
        ({"partitions": 2**31 - 1}, ErrorCode.INVALID_PARTITIONS),
    ],
)
def test_errors_carry_a_code_and_a_sentence(
    client: WireClient, topic: str, change: dict[str, Any], code: ErrorCode
) -> None:
    (result,) = create(client, creatable(topic, **change))
    assert result.error_code == code
    assert result.error_message
    assert described(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("assignment", "code"),
    [
        ([(0, [1]), (1, [1])], ErrorCode.NONE),
        ([(0, [1]), (0, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(1, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [7])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_manual_assignment(
    client: WireClient, topic: str, assignment: list[tuple[int, list[int]]], code: ErrorCode
) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids) for index, ids in assignment
        ],
    )
    (result,) = create(client, wanted)
    assert result.error_code == code
    if not code:
        assert len(described(client, topic).partitions) == len(assignment)


def test_a_setting_given_twice_is_refused(client: WireClient, topic: str) -> None:
    wanted = creatable(topic)
    wanted.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in "12"]
    (result,) = create(client, wanted)
    assert result.error_code == ErrorCode.INVALID_CONFIG


# -- more partitions ---------------------------------------------------------------------------------------


def grow(
    client: WireClient, *topics: CreatePartitionsTopic, version: int = 3, validate_only: bool = False
) -> Any:
    request = CreatePartitionsRequest(topics=list(topics), validate_only=validate_only)
    return client.call(request, version).results


@pytest.mark.parametrize("version", [0, 2, 3])
def test_a_topic_grows(client: WireClient, topic: str, version: int) -> None:
    create(client, creatable(topic, 2))
    wanted = CreatePartitionsTopic(name=topic, count=5, assignments=None)
    (result,) = grow(client, wanted, version=version, validate_only=True)
    assert result.error_code == ErrorCode.NONE
    assert len(described(client, topic).partitions) == 2
    (result,) = grow(client, wanted, version=version)
    assert result.error_code == ErrorCode.NONE
    assert [p.partition_index for p in described(client, topic).partitions] == list(range(5))


@pytest.mark.parametrize(
    ("count", "brokers", "code"),
    [
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1], [1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (3, [[1]], ErrorCode.NONE),
    ],
)
def test_growth_is_checked(
    client: WireClient, topic: str, count: int, brokers: list[list[int]] | None, code: ErrorCode
) -> None:
    create(client, creatable(topic, 2))
    assignments = None
    if brokers is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers]
    (result,) = grow(client, CreatePartitionsTopic(name=topic, count=count, assignments=assignments))
    assert result.error_code == code
    assert bool(result.error_message) == bool(code)


def test_growing_what_is_not_there_or_there_twice(client: WireClient, topic: str) -> None:
    create(client, creatable(topic))
    twice = CreatePartitionsTopic(name=topic, count=2, assignments=None)
    missing = CreatePartitionsTopic(name=topic + "-missing", count=2, assignments=None)
    assert {result.name: result.error_code for result in grow(client, twice, missing, twice)} == {
        topic: ErrorCode.INVALID_REQUEST,
        missing.name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


# -- deletion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 4, 5])
def test_deleting_by_name(client: WireClient, topic: str, version: int) -> None:
    create(client, creatable(topic, retention_ms="5"))
    request = DeleteTopicsRequest(topic_names=[topic, topic + "-missing"])
    responses = client.call(request, version).responses
    assert [(response.name, response.error_code) for response in responses] == [
        (topic, ErrorCode.NONE),
        (topic + "-missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert described(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (again,) = create(client, creatable(topic))
    configs = {config.name: config.value for config in again.configs}
    assert configs["retention.ms"] == "1209600000"


def test_deleting_by_id(client: WireClient, topic: str) -> None:
    (made,) = create(client, creatable(topic))
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name=None, topic_id=made.topic_id),
            DeleteTopicState(name=None, topic_id=b"?" * 16),
            DeleteTopicState(name=topic, topic_id=made.topic_id),
        ]
    )
    responses = client.call(request, 6).responses
    assert [(response.name, response.topic_id, response.error_code) for response in responses] == [
        (topic, made.topic_id, ErrorCode.NONE),
        (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic, made.topic_id, ErrorCode.INVALID_REQUEST),
    ]
    assert described(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_made_anew_meanwhile_is_not_the_one_to_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker replaces the topic after the request has come, before it is carried out."""
    async with local_cluster(tmp_path) as cluster:
        (made,) = (await cluster.ask(1, create_topic("t"), 7)).topics
        await cluster.knows("t")
        metadata = cluster[1].metadata
        change = metadata.change

        async def overtaken(*arguments: Any) -> Any:
            monkeypatch.undo()
            await cluster.ask(2, DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000), 6)
            await cluster.ask(2, create_topic("t"), 7)
            return await change(*arguments)

        monkeypatch.setattr(metadata, "change", overtaken)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=made.topic_id)])
        (result,) = (await cluster.ask(1, request, 6)).responses
        assert (result.error_code, result.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
        await eventually(lambda: "t" in cluster[1].image.topics)
        assert cluster[1].image.topics["t"].topic_id != made.topic_id


def test_a_topic_named_twice_is_not_deleted(client: WireClient, topic: str) -> None:
    create(client, creatable(topic))
    (response,) = client.call(DeleteTopicsRequest(topic_names=[topic, topic]), 5).responses
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert described(client, topic).error_code == ErrorCode.NONE


def test_deletion_can_be_turned_off(start_broker: Any, topic: str) -> None:
    with WireClient(start_broker("delete.topic.enable=false").bootstrap) as client:
        create(client, creatable(topic))
        (response,) = client.call(DeleteTopicsRequest(topic_names=[topic]), 5).responses
        assert response.error_code == ErrorCode.TOPIC_DELETION_DISABLED


# -- restart -----------------------------------------------------------------------------------------------


def test_topics_survive_a_kill(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        (made,) = create(client, creatable(topic, 2, retention_ms="5"))
        grow(client, CreatePartitionsTopic(name=topic, count=3, assignments=None))
    fresh_broker.kill()
    fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        found = described(client, topic)
        assert (found.topic_id, len(found.partitions)) == (made.topic_id, 3)
