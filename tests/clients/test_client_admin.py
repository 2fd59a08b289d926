"""Administration as a user does it with a client: what each answer says, and that it is then so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.kafka_clients import (
    CLIENTS,
    DEADLINE_SECONDS,
    Message,
    confluent_admin,
    create_topic,
    kafka_python,
    kcat,
    need,
)

DYNAMIC_TOPIC = ConfigSource.DYNAMIC_TOPIC_CONFIG
DYNAMIC_BROKER = ConfigSource.DYNAMIC_BROKER_CONFIG
STATIC_BROKER = ConfigSource.STATIC_BROKER_CONFIG
DEFAULT = ConfigSource.DEFAULT_CONFIG


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return confluent_admin(broker.bootstrap)


def error_of(futures: dict[Any, Any]) -> KafkaError:
    """The error with which the one operation failed."""
    (future,) = futures.values()
    failure = future.exception(DEADLINE_SECONDS)
    assert isinstance(failure, KafkaException), "it worked"
    error = failure.args[0]
    assert isinstance(error, KafkaError)
    return error


def partitions(admin: AdminClient, topic: str) -> dict[int, list[int]]:
    """Replicas by partition; nothing for a topic that is not there."""
    found = admin.list_topics(timeout=DEADLINE_SECONDS).topics.get(topic)
    return {} if found is None else {index: part.replicas for index, part in found.partitions.items()}


# -- topics ------------------------------------------------------------------------------------------------


def test_validating_creates_nothing(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, num_partitions=3, replication_factor=1)
    admin.create_topics([new], validate_only=True)[topic].result(DEADLINE_SECONDS)
    assert partitions(admin, topic) == {}
    admin.create_topics([new])[topic].result(DEADLINE_SECONDS)
    more = NewPartitions(topic, 5)
    admin.create_partitions([more], validate_only=True)[topic].result(DEADLINE_SECONDS)
    assert partitions(admin, topic) == {0: [1], 1: [1], 2: [1]}


def test_replicas_may_be_assigned_by_hand(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, replica_assignment=[[1], [1]])])[topic].result(DEADLINE_SECONDS)
    assert partitions(admin, topic) == {0: [1], 1: [1]}
    more = NewPartitions(topic, 3, replica_assignment=[[1]])
    admin.create_partitions([more])[topic].result(DEADLINE_SECONDS)
    assert partitions(admin, topic) == {0: [1], 1: [1], 2: [1]}


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("two words", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("größe", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("too-many-replicas", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("no-such-broker", 1, replica_assignment=[[7]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("bad-value", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("bad-key", 1, 1, config={"retention": "1"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:20] if isinstance(value, NewTopic) else "",
)
def test_topics_that_cannot_be(admin: AdminClient, new: NewTopic, code: int) -> None:
    error = error_of(admin.create_topics([new]))
    assert error.code() == code
    assert error.str()
    assert partitions(admin, new.topic) == {}


def test_one_bad_topic_does_not_stop_the_others(admin: AdminClient, topic: str) -> None:
    futures = admin.create_topics([NewTopic(topic, 1, 1), NewTopic("not good", 1, 1)])
    futures[topic].result(DEADLINE_SECONDS)
    assert futures["not good"].exception(DEADLINE_SECONDS) is not None
    assert partitions(admin, topic) == {0: [1]}


def test_a_topic_that_is_not_there(admin: AdminClient) -> None:
    code = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert error_of(admin.delete_topics(["nowhere"])).code() == code
    assert error_of(admin.create_partitions([NewPartitions("nowhere", 2)])).code() == code
    assert error_of(admin.describe_configs([_topic("nowhere")])).code() == code
    assert (
        error_of(admin.incremental_alter_configs([_topic("nowhere", {"retention.ms": "1"})])).code() == code
    )


def test_a_deleted_topic_comes_back_empty(admin: AdminClient, broker: BrokerProcess, topic: str) -> None:
    for text in (b"first", b"second"):
        create_topic(broker.bootstrap, topic)
        CLIENTS[0].produce(broker.bootstrap, topic, [Message(text)])
        (found,) = CLIENTS[0].consume(broker.bootstrap, topic, 1)
        assert (found.message.value, found.offset) == (text, 0)
        admin.delete_topics([topic])[topic].result(DEADLINE_SECONDS)
        assert partitions(admin, topic) == {}


def test_kcat_lists_the_cluster(broker: BrokerProcess, topic: str) -> None:
    need(CLIENTS[3])
    create_topic(broker.bootstrap, topic, 2)
    found = json.loads(kcat(broker.bootstrap, "-L", "-J", "-t", topic))
    assert found["brokers"] == [{"id": 1, "name": broker.bootstrap}]
    assert found["controllerid"] == 1
    assert [(t["topic"], [p["partition"] for p in t["partitions"]]) for t in found["topics"]] == [
        (topic, [0, 1])
    ]


def test_log_directories_grow_with_the_messages(broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, 2)
    admin = kafka_python.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap)

    def sizes() -> dict[int, int]:
        ((directory,),) = (found["log_dirs"] for found in admin.describe_log_dirs())
        assert directory["log_dir"] == str(broker.data)
        (parts,) = (found["partitions"] for found in directory["topics"] if found["name"] == topic)
        return {part["partition_index"]: part["partition_size"] for part in parts}

    try:
        assert sizes() == {0: 0, 1: 0}
        CLIENTS[0].produce(broker.bootstrap, topic, [Message(b"." * 1_000, partition=1)] * 10)
        after = sizes()
        stored = sum(path.stat().st_size for path in (broker.data / f"{topic}-1").glob("*.log"))
        assert after == {0: 0, 1: stored}
        assert stored > 10_000
    finally:
        admin.close()


# -- settings ----------------------------------------------------------------------------------------------


def _topic(name: str, settings: dict[str, str | None] | None = None) -> ConfigResource:
    """A topic and changes to it; None takes a setting away."""
    return ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=_changes(settings or {}))


def _changes(settings: dict[str, str | None]) -> list[ConfigEntry]:
    kinds = AlterConfigOpType
    return [
        ConfigEntry(name, value, incremental_operation=kinds.DELETE if value is None else kinds.SET)
        for name, value in settings.items()
    ]


def change(admin: AdminClient, resource: ConfigResource) -> None:
    (future,) = admin.incremental_alter_configs([resource]).values()
    future.result(DEADLINE_SECONDS)


def entry(admin: AdminClient, resource: ConfigResource, name: str) -> ConfigEntry:
    (future,) = admin.describe_configs([resource]).values()
    found = future.result(DEADLINE_SECONDS)[name]
    assert isinstance(found, ConfigEntry)
    return found


def shown(admin: AdminClient, topic: str, name: str) -> tuple[str | None, ConfigSource]:
    found = entry(admin, _topic(topic), name)
    return found.value, ConfigSource(found.source)


def synonyms(broker: BrokerProcess, topic: str, name: str) -> list[tuple[str, str, str]]:
    """By kafka-python: confluent-kafka keeps only one of the synonyms that have the same name."""
    admin = kafka_python.admin.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        resource = kafka_python.admin.ConfigResource(kafka_python.admin.ConfigResourceType.TOPIC, topic)
        found = admin.describe_configs([resource], include_synonyms=True, config_filter="all")
    finally:
        admin.close()
    return [tuple(synonym.values()) for synonym in found["topic"][topic][name]["synonyms"]]


def test_each_level_shows_where_a_value_comes_from(start_broker: StartBroker, topic: str) -> None:
    """A topic's value hides the one set on the broker, then the one it was started with."""
    broker = start_broker("log.segment.bytes=3000000")
    admin = confluent_admin(broker.bootstrap)
    create_topic(broker.bootstrap, topic, segment_bytes="1000000")

    def set_on_broker(value: str | None) -> ConfigResource:
        changes = _changes({"log.segment.bytes": value})
        return ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=changes)

    change(admin, set_on_broker("2000000"))
    levels = [
        ("segment.bytes", "1000000", "DYNAMIC_TOPIC_CONFIG"),
        ("log.segment.bytes", "2000000", "DYNAMIC_BROKER_CONFIG"),
        ("log.segment.bytes", "3000000", "STATIC_BROKER_CONFIG"),
        ("log.segment.bytes", "1073741824", "DEFAULT_CONFIG"),
    ]
    assert shown(admin, topic, "segment.bytes") == ("1000000", DYNAMIC_TOPIC)
    assert synonyms(broker, topic, "segment.bytes") == levels
    # One after the other is taken away, and the next one shows.
    change(admin, _topic(topic, {"segment.bytes": None}))
    assert shown(admin, topic, "segment.bytes") == ("2000000", DYNAMIC_BROKER)
    change(admin, set_on_broker(None))
    assert shown(admin, topic, "segment.bytes") == ("3000000", STATIC_BROKER)
    assert synonyms(broker, topic, "segment.bytes") == levels[2:]
    assert shown(admin, topic, "retention.ms") == ("1209600000", DEFAULT)


def test_altering_replaces_all_that_was_set(admin: AdminClient, broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, retention_ms="5000", segment_bytes="1000000")
    whole = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "7000"})
    with pytest.warns(DeprecationWarning):
        (future,) = admin.alter_configs([whole]).values()
    future.result(DEADLINE_SECONDS)
    assert shown(admin, topic, "retention.ms") == ("7000", DYNAMIC_TOPIC)
    assert shown(admin, topic, "segment.bytes") == ("1073741824", DEFAULT)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("retention.ms", "soon", "whole number"),
        ("segment.bytes", "-5", "segment.bytes"),
        ("cleanup.policy", "burn", "cleanup.policy"),
        ("message.timestamp.type", "Whenever", "message.timestamp.type"),
        ("retention.hours", "5", "retention"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(
    admin: AdminClient, broker: BrokerProcess, topic: str, name: str, value: str, said: str
) -> None:
    create_topic(broker.bootstrap, topic, retention_ms="5000")
    wrong = _topic(topic, {"max.message.bytes": "1000", name: value})
    error = error_of(admin.incremental_alter_configs([wrong]))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert said in error.str()
    # All or nothing: the good half of the request is not applied either.
    assert shown(admin, topic, "max.message.bytes") == ("1048588", DEFAULT)


def test_a_changed_setting_works_at_once(admin: AdminClient, broker: BrokerProcess, topic: str) -> None:
    create_topic(broker.bootstrap, topic, max_message_bytes="1000")
    large = [Message(b"." * 5_000)]
    with pytest.raises(AssertionError, match="MSG_SIZE_TOO_LARGE"):
        CLIENTS[0].produce(broker.bootstrap, topic, large)
    change(admin, _topic(topic, {"max.message.bytes": "10000"}))
    CLIENTS[0].produce(broker.bootstrap, topic, large)
    assert len(CLIENTS[0].consume(broker.bootstrap, topic, 1)) == 1
