"""The same administration through the admin clients that people really use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from forebay.config.keys.topic import TOPIC_KEYS
from support.brokers.broker_process import BrokerProcess

with warnings.catch_warnings():
    # kafka-python reads its schemas by a deprecated call when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.admin import ConfigResource as PythonConfigResource
    from kafka.admin import ConfigResourceType as PythonResourceType
    from kafka.admin import KafkaAdminClient
    from kafka.admin import NewTopic as PythonNewTopic
    from kafka.errors import TopicAlreadyExistsError

TIMEOUT_S = 20


# -- confluent-kafka ---------------------------------------------------------------------------------------


@pytest.fixture
def confluent(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def make(client: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)
    client.create_topics([new])[name].result(TIMEOUT_S)


def settings_of(client: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    entries: dict[str, ConfigEntry] = client.describe_configs([resource])[resource].result(TIMEOUT_S)
    return entries


def test_confluent_topics(confluent: AdminClient, topic: str) -> None:
    make(confluent, topic, 2)
    with pytest.raises(KafkaException, match="exists already"):
        make(confluent, topic)
    confluent.create_partitions([NewPartitions(topic, 4)])[topic].result(TIMEOUT_S)
    described = confluent.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)
    assert [(p.id, p.leader.id, len(p.isr)) for p in described.partitions] == [(n, 1, 1) for n in range(4)]
    with pytest.raises(KafkaException, match="3 does not divide 4"):
        confluent.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    confluent.delete_topics([topic])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        confluent.describe_topics(TopicCollection([topic]))[topic].result(TIMEOUT_S)


def test_confluent_settings(confluent: AdminClient, topic: str) -> None:
    make(confluent, topic, retention_ms="60000")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    before = settings_of(confluent, resource)
    assert set(before) == set(TOPIC_KEYS)
    assert before["retention.ms"].value == "60000"
    assert ConfigSource(before["retention.ms"].source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert [synonym.value for synonym in before["retention.ms"].synonyms.values()] == ["60000", "336"]

    change = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    confluent.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    after = settings_of(confluent, resource)
    assert (after["retention.ms"].value, after["retention.ms"].is_default) == ("1209600000", True)
    assert after["cleanup.policy"].value == "delete,compact"

    wrong = ConfigResource(
        ConfigResource.Type.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.msec", "1", incremental_operation=AlterConfigOpType.SET)],
    )
    with pytest.raises(KafkaException, match=r"did you mean 'retention\.ms'"):
        confluent.incremental_alter_configs([wrong])[wrong].result(TIMEOUT_S)


def test_confluent_cluster(confluent: AdminClient, broker: BrokerProcess) -> None:
    cluster = confluent.describe_cluster().result(TIMEOUT_S)
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [broker.bootstrap]
    assert cluster.controller.id == 1
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    assert settings_of(confluent, resource)["num.partitions"].is_read_only


def test_confluent_groups(confluent: AdminClient, topic: str) -> None:
    key = "consumer.session.timeout.ms"
    change = ConfigEntry(key, "50000", incremental_operation=AlterConfigOpType.SET)
    altered = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[change])
    confluent.incremental_alter_configs([altered])[altered].result(TIMEOUT_S)
    entry = settings_of(confluent, ConfigResource(ResourceType.GROUP, topic))[key]
    assert (entry.value, ConfigSource(entry.source)) == ("50000", ConfigSource.GROUP_CONFIG)


# -- kafka-python ------------------------------------------------------------------------------------------


@pytest.fixture
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


def test_kafka_python_topics(kafka_python: KafkaAdminClient, topic: str) -> None:
    new = PythonNewTopic(topic, 2, 1, topic_configs={"retention.ms": "60000"})
    kafka_python.create_topics([new])
    with pytest.raises(TopicAlreadyExistsError):
        kafka_python.create_topics([new])
    kafka_python.create_partitions({topic: 3})
    (described,) = kafka_python.describe_topics([topic])
    assert len(described["partitions"]) == 3
    kafka_python.delete_topics([topic])
    assert topic not in kafka_python.list_topics()


def test_kafka_python_settings(kafka_python: KafkaAdminClient, topic: str) -> None:
    kafka_python.create_topics([PythonNewTopic(topic, 1, 1)])
    resource = PythonConfigResource(PythonResourceType.TOPIC, topic, {"retention.ms": "5"})
    kafka_python.alter_configs([resource])
    described = kafka_python.describe_configs([PythonConfigResource(PythonResourceType.TOPIC, topic)])
    assert "'5'" in repr(described)
    assert kafka_python.describe_log_dirs()
    assert kafka_python.describe_cluster()["cluster_id"]


@pytest.mark.parametrize(
    ("kind", "name", "key", "value"),
    [
        (PythonResourceType.GROUP, "of-python", "consumer.heartbeat.interval.ms", "700"),
        (PythonResourceType.BROKER_LOGGER, "1", "forebay.broker.cluster.controller", "DEBUG"),
    ],
)
def test_kafka_python_groups_and_loggers(
    kafka_python: KafkaAdminClient, kind: PythonResourceType, name: str, key: str, value: str
) -> None:
    kafka_python.alter_configs([PythonConfigResource(kind, name, {key: value})])
    described = kafka_python.describe_configs([PythonConfigResource(kind, name)])
    assert described[kind.name.lower()][name][key]["value"] == value


# -- aiokafka ----------------------------------------------------------------------------------------------


async def test_aiokafka_topics(broker: BrokerProcess, topic: str) -> None:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        created = await client.create_topics([AioNewTopic(topic, 2, 1, topic_configs={"retention.ms": "5"})])
        assert [error[1] for error in created.topic_errors] == [0]
        await client.create_partitions({topic: AioNewPartitions(total_count=3)})
        (described,) = await client.describe_topics([topic])
        assert len(described["partitions"]) == 3
        await client.delete_topics([topic])
        assert topic not in await client.list_topics()
    finally:
        await client.close()
