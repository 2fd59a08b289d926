"""Topic administration: every rule, each with its error code, and what a good plan looks like."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from forebay.config import BrokerConfig, broker_config
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import (
    BrokerPut,
    Change,
    ConfigOwner,
    ConfigPut,
    TopicDeleted,
    TopicPut,
)
from forebay.core.cluster.internal_names import INTERNAL_TOPICS
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.topics.topic_requests import (
    NAME_LENGTH_MAX,
    PARTITIONS_MAX,
    NewTopic,
    create_partitions,
    create_topic,
    delete_topic,
    validate_topic_name,
)
from forebay.errors import ErrorCode, KafkaError

CONFIG = broker_config()
TOPIC_ID = b"0123456789abcdef"


def cluster(brokers: int = 3) -> ClusterImage:
    registrations = [BrokerRegistration(id=number, host="h", port=9) for number in range(1, brokers + 1)]
    return ClusterImage(cluster_id="c").apply([BrokerPut(registration=broker) for broker in registrations])


def new(name: str = "t", **more: Any) -> NewTopic:
    return NewTopic(name=name, topic_id=TOPIC_ID, **more)


def with_topic(image: ClusterImage, name: str = "t", **more: Any) -> ClusterImage:
    return image.apply(create_topic(image, CONFIG, new(name, **more)))


def assignment_of(changes: list[Change]) -> tuple[tuple[int, ...], ...]:
    (put,) = [change for change in changes if isinstance(change, TopicPut)]
    return put.record.assignment


# -- names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * NAME_LENGTH_MAX, "...", "__consumer_offsets"])
def test_good_names(name: str) -> None:
    validate_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * (NAME_LENGTH_MAX + 1), "a/b", "a b", "ü", "a\n", "\x00"]
)
def test_bad_names(name: str) -> None:
    with pytest.raises(KafkaError) as caught:
        create_topic(cluster(), CONFIG, new(name))
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b.c", "a.b_c")])
def test_names_that_differ_only_by_dot_and_underscore_collide(first: str, second: str) -> None:
    with pytest.raises(KafkaError, match="only by") as caught:
        create_topic(with_topic(cluster(), first), CONFIG, new(second))
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- creation ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brokers", "settings", "partitions", "replicas"),
    [
        (1, {}, 1, 1),
        (2, {}, 1, 2),
        (5, {}, 1, 3),
        (5, {"num.partitions": "4", "default.replication.factor": "2"}, 4, 2),
    ],
)
def test_defaults(brokers: int, settings: dict[str, str], partitions: int, replicas: int) -> None:
    assignment = assignment_of(create_topic(cluster(brokers), broker_config(settings), new()))
    assert len(assignment) == partitions
    assert {len(item) for item in assignment} == {replicas}


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS),
        ({"num_partitions": PARTITIONS_MAX + 1}, ErrorCode.INVALID_PARTITIONS),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.mss": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
        ({"assignment": {0: (1,)}, "num_partitions": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignment": {0: (1,)}, "replication_factor": 1}, ErrorCode.INVALID_REQUEST),
        ({"assignment": {0: (1,), 2: (1,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {1: (1,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: ()}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (1, 1)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (1, 2), 1: (1,)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": {0: (1, 9)}}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (
            {"assignment": dict.fromkeys(range(PARTITIONS_MAX + 1), (1,))},
            ErrorCode.INVALID_PARTITIONS,
        ),
    ],
)
def test_what_cannot_be_created(asked: dict[str, Any], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        create_topic(cluster(3), CONFIG, new(**asked))
    assert caught.value.code == code


def test_a_topic_exists_once() -> None:
    with pytest.raises(KafkaError) as caught:
        create_topic(with_topic(cluster()), CONFIG, new())
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_manual_assignment_is_taken_as_it_is() -> None:
    changes = create_topic(cluster(3), CONFIG, new(assignment={1: (3, 1), 0: (2, 3)}))
    assert assignment_of(changes) == ((2, 3), (3, 1))


def test_settings_are_written_beside_the_topic() -> None:
    changes = create_topic(cluster(), CONFIG, new(configs={"retention.ms": "5"}))
    assert changes[1:] == [ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"retention.ms": "5"})]


def test_no_broker_no_topic() -> None:
    with pytest.raises(KafkaError) as caught:
        create_topic(cluster(0), CONFIG, new())
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_small_topics_take_turns_on_the_brokers() -> None:
    image = cluster(3)
    for number in range(6):
        image = with_topic(image, f"t{number}", replication_factor=1)
    assert Counter(topic.partitions[0].leader for topic in image.topics.values()) == {1: 2, 2: 2, 3: 2}


def test_ten_thousand_partitions_are_one_change() -> None:
    (change,) = create_topic(cluster(3), CONFIG, new(num_partitions=10_000))
    assert isinstance(change, TopicPut)
    assert len(change.record.assignment) == 10_000


# -- deletion ---------------------------------------------------------------------------------------------


def test_deletion_takes_the_settings_along() -> None:
    image = with_topic(cluster(), configs={"retention.ms": "5"})
    changes = delete_topic(image, CONFIG, "t")
    assert changes == [
        TopicDeleted(name="t", topic_id=TOPIC_ID),
        ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={}),
    ]
    after = image.apply(changes)
    assert (after.topics, after.topic_configs) == ({}, {})


@pytest.mark.parametrize(
    ("config", "name", "code"),
    [
        (CONFIG, "u", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (broker_config({"delete.topic.enable": "false"}), "t", ErrorCode.TOPIC_DELETION_DISABLED),
    ],
)
def test_what_cannot_be_deleted(config: BrokerConfig, name: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        delete_topic(with_topic(cluster()), config, name)
    assert caught.value.code == code


# -- more partitions --------------------------------------------------------------------------------------


def test_added_partitions_go_on_round_the_brokers() -> None:
    image = with_topic(cluster(3), num_partitions=2, replication_factor=2)
    changes = create_partitions(image, "t", 6, None)
    assignment = assignment_of(changes)
    assert assignment[:2] == image.topics["t"].record.assignment
    assert Counter(replicas[0] for replicas in assignment) == {1: 2, 2: 2, 3: 2}


def test_added_partitions_can_be_assigned() -> None:
    image = with_topic(cluster(3), num_partitions=1, replication_factor=2)
    assert assignment_of(create_partitions(image, "t", 3, [[3, 2], [2, 1]]))[1:] == ((3, 2), (2, 1))


@pytest.mark.parametrize(
    ("name", "count", "assignment", "code"),
    [
        ("u", 5, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 0, None, ErrorCode.INVALID_PARTITIONS),
        ("t", PARTITIONS_MAX + 1, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 4, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_that_cannot_be_added(
    name: str, count: int, assignment: list[list[int]] | None, code: ErrorCode
) -> None:
    image = with_topic(cluster(3), num_partitions=2, replication_factor=2)
    with pytest.raises(KafkaError) as caught:
        create_partitions(image, name, count, assignment)
    assert caught.value.code == code


@pytest.mark.parametrize("name", INTERNAL_TOPICS)
def test_the_topics_of_the_brokers_stay_as_they_are(name: str) -> None:
    image = with_topic(cluster(), name)
    with pytest.raises(KafkaError, match="cannot be deleted") as caught:
        delete_topic(image, CONFIG, name)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match="keeps its number of partitions") as caught:
        create_partitions(image, name, 60, None)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_too_few_brokers_are_left_for_more_partitions() -> None:
    image = with_topic(cluster(2), replication_factor=2)
    shrunk = cluster(1).apply([TopicPut(record=image.topics["t"].record)])
    with pytest.raises(KafkaError) as caught:
        create_partitions(shrunk, "t", 2, None)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
