"""The cluster image: immutable, built by changes, stored as text that reads back."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cluster.image import NO_CONTROLLER, ClusterImage
from forebay.core.cluster.image_changes import (
    BrokerDeleted,
    BrokerPut,
    Change,
    ConfigOwner,
    ConfigPut,
    ControllerPut,
    PartitionPut,
    TopicDeleted,
    TopicPut,
)
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored import image_text
from forebay.errors import ProtocolError

ID_1, ID_2 = bytes(15) + b"\x01", bytes(15) + b"\x02"


def record(name: str, topic_id: bytes, *assignment: tuple[int, ...]) -> TopicRecord:
    return TopicRecord(name=name, topic_id=topic_id, assignment=assignment)


def changed(index: int, leader: int, epoch: int = 1) -> PartitionState:
    return PartitionState(
        index=index, leader=leader, leader_epoch=epoch, isr=(leader,), replicas=(1, 2), partition_epoch=9
    )


EMPTY = ClusterImage(cluster_id="c")


def test_a_new_topic_is_led_by_its_first_replicas() -> None:
    image = EMPTY.apply([TopicPut(record=record("t", ID_1, (1, 2), (2, 1)), revision=5)], 5)
    topic = image.topics["t"]
    assert [(p.index, p.leader, p.leader_epoch, p.isr, p.partition_epoch) for p in topic.partitions] == [
        (0, 1, 0, (1, 2), 0),
        (1, 2, 0, (2, 1), 0),
    ]
    assert image.topic_by_id(ID_1) is topic
    assert (image.revision, topic.revision, topic.replication_factor) == (5, 5, 2)
    assert EMPTY.topics == {}


def test_added_partitions_leave_the_state_of_the_others_alone() -> None:
    image = EMPTY.apply(
        [TopicPut(record=record("t", ID_1, (1, 2))), PartitionPut(topic_id=ID_1, state=changed(0, 2))]
    )
    image = image.apply([TopicPut(record=record("t", ID_1, (1, 2), (2, 1)))])
    assert [p.leader for p in image.topics["t"].partitions] == [2, 2]
    assert [p.leader_epoch for p in image.topics["t"].partitions] == [1, 0]


def test_a_topic_made_again_is_another_topic() -> None:
    image = EMPTY.apply(
        [TopicPut(record=record("t", ID_1, (1,))), PartitionPut(topic_id=ID_1, state=changed(0, 2))]
    )
    image = image.apply([TopicPut(record=record("t", ID_2, (1,)))])
    assert image.topic_by_id(ID_1) is None
    assert image.topics["t"].partitions[0].leader_epoch == 0


def test_what_is_left_of_a_deleted_topic_is_ignored() -> None:
    image = EMPTY.apply([TopicPut(record=record("t", ID_1, (1,)))]).apply([TopicDeleted(name="t")])
    image = image.apply([PartitionPut(topic_id=ID_1, state=changed(0, 2)), TopicDeleted(name="t")])
    assert (image.topics, image.topic_names) == ({}, {})


def test_a_state_beyond_the_topic_is_ignored() -> None:
    image = EMPTY.apply([TopicPut(record=record("t", ID_1, (1,)))])
    image = image.apply([PartitionPut(topic_id=ID_1, state=changed(7, 2))])
    assert len(image.topics["t"].partitions) == 1


@pytest.mark.parametrize("index", [-1, 1])
def test_there_is_no_partition_outside_a_topic(index: int) -> None:
    image = EMPTY.apply([TopicPut(record=record("t", ID_1, (1,)))])
    assert image.partition("t", index) is None
    assert image.partition("u", 0) is None
    assert image.partition("t", 0) is not None


def test_brokers_and_settings_come_and_go() -> None:
    broker = BrokerRegistration(id=1, host="h", port=9)
    image = EMPTY.apply(
        [
            BrokerPut(registration=broker),
            ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"a": "1"}, revision=3),
            ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={"b": "2"}, revision=4),
            ConfigPut(owner=ConfigOwner.GROUP, name="g", overrides={"c": "3"}, revision=5),
        ]
    )
    assert image.brokers == {1: broker}
    assert (image.topic_config("t").overrides, image.topic_config("t").revision) == ({"a": "1"}, 3)
    assert image.broker_config("1").overrides == {"b": "2"}
    assert (image.group_configs["g"].overrides, image.group_configs["g"].revision) == ({"c": "3"}, 5)
    image = image.apply(
        [
            BrokerDeleted(id=1),
            ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={}),
            ConfigPut(owner=ConfigOwner.TOPIC, name="u", overrides={}),
            ConfigPut(owner=ConfigOwner.BROKER, name="1", overrides={}),
            ConfigPut(owner=ConfigOwner.GROUP, name="g", overrides={}),
        ]
    )
    assert image == EMPTY
    assert (image.topic_config("t").overrides, image.topic_config("t").revision) == ({}, 0)


def test_controllers_come_and_go() -> None:
    image = EMPTY.apply([ControllerPut(id=3)])
    assert (EMPTY.controller, image.controller) == (NO_CONTROLLER, 3)
    assert image.apply([BrokerDeleted(id=3)]).controller == 3
    assert image.apply([ControllerPut(id=NO_CONTROLLER)]) == EMPTY


def test_what_did_not_change_stays_the_same_object() -> None:
    image = EMPTY.apply([TopicPut(record=record("t", ID_1, (1,)))])
    after = image.apply([BrokerPut(registration=BrokerRegistration(id=1, host="h", port=9))])
    assert after.topics is image.topics
    assert after.topic_configs is image.topic_configs


# -- any order of changes, in any grouping ------------------------------------------------------------

NAMES = st.sampled_from(["a", "b"])
IDS = st.sampled_from([ID_1, ID_2])


def _record(name: str, partitions: int) -> TopicRecord:
    # An id belongs to one name, as it does in the store.
    return record(name, ID_1 if name == "a" else ID_2, *[(1, 2)] * partitions)


CHANGES = st.one_of(
    st.builds(lambda name, count: TopicPut(record=_record(name, count)), NAMES, st.integers(1, 3)),
    st.builds(lambda name: TopicDeleted(name=name), NAMES),
    st.builds(
        lambda topic_id, index, leader: PartitionPut(topic_id=topic_id, state=changed(index, leader)),
        IDS,
        st.integers(0, 3),
        st.integers(1, 2),
    ),
    st.builds(
        lambda name, text: ConfigPut(
            owner=ConfigOwner.TOPIC, name=name, overrides={"k": text} if text else {}
        ),
        NAMES,
        st.text(max_size=1),
    ),
)


@given(st.lists(CHANGES, max_size=12))
def test_one_by_one_or_all_at_once_is_the_same(changes: list[Change]) -> None:
    one_by_one = EMPTY
    for change in changes:
        before = repr(one_by_one)
        after = one_by_one.apply([change])
        assert repr(one_by_one) == before
        one_by_one = after
    at_once = EMPTY.apply(changes)
    assert at_once == one_by_one
    assert {topic.topic_id: name for name, topic in at_once.topics.items()} == at_once.topic_names
    for topic in at_once.topics.values():
        assert [p.index for p in topic.partitions] == list(range(len(topic.record.assignment)))


# -- stored form ----------------------------------------------------------------------------------------

BROKER_IDS = st.integers(0, 2**31 - 1)
REPLICAS = st.lists(BROKER_IDS, min_size=1, max_size=3, unique=True).map(tuple)


@given(st.binary(min_size=16, max_size=16), st.lists(REPLICAS, min_size=1, max_size=5).map(tuple))
def test_topics_read_back(topic_id: bytes, assignment: tuple[tuple[int, ...], ...]) -> None:
    value = record("t", topic_id, *assignment)
    assert image_text.decode_topic("t", image_text.encode_topic(value)) == value
    assert "/" not in image_text.topic_id_text(topic_id)


@given(st.integers(-1, 9), st.integers(0, 2**31 - 1), REPLICAS, REPLICAS, st.integers(1, 2**62))
def test_partitions_read_back(
    leader: int, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...], revision: int
) -> None:
    state = PartitionState(
        index=3, leader=leader, leader_epoch=epoch, isr=isr, replicas=replicas, partition_epoch=revision
    )
    assert image_text.decode_partition(3, image_text.encode_partition(state), revision) == state


def test_moves_are_stored_with_the_partition_and_only_then() -> None:
    state = changed(0, 1)
    assert b"adding" not in image_text.encode_partition(state)
    moving = replace(state, replicas=(3, 1, 2), adding=(3,), removing=(1, 2))
    assert image_text.decode_partition(0, image_text.encode_partition(moving), 9) == moving
    assert moving.target == (3,)


@given(st.text(max_size=5), st.integers(0, 65535), st.none() | st.text(max_size=3))
def test_brokers_read_back(host: str, port: int, rack: str | None) -> None:
    broker = BrokerRegistration(id=4, host=host, port=port, rack=rack, epoch=8)
    assert image_text.decode_broker(4, image_text.encode_broker(broker), 8) == broker


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=4)))
def test_settings_read_back(overrides: dict[str, str]) -> None:
    assert image_text.decode_overrides("t", image_text.encode_overrides(overrides)) == overrides


def test_a_reader_ignores_names_it_does_not_know() -> None:
    fields = json.loads(image_text.encode_topic(record("t", ID_1, (1,))))
    fields["later"] = {"x": 1}
    assert image_text.decode_topic("t", json.dumps(fields).encode()) == record("t", ID_1, (1,))


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"id":"short","assignment":[[1]]}',
        b'{"id":"AAAAAAAAAAAAAAAAAAAAAA","assignment":[]}',
        b'{"id":"AAAAAAAAAAAAAAAAAAAAAA","assignment":[[]]}',
        b'{"id":"AAAAAAAAAAAAAAAAAAAAAA","assignment":["x"]}',
        b'{"id":5,"assignment":[[1]]}',
        b"[" * 100_000,
    ],
)
def test_what_we_did_not_write_is_one_clear_error(value: bytes) -> None:
    with pytest.raises(ProtocolError, match=r"stored topic t|not a topic id"):
        image_text.decode_topic("t", value)


@given(st.binary(max_size=30))
def test_any_bytes_are_a_value_or_a_protocol_error(value: bytes) -> None:
    readers = (
        lambda: image_text.decode_topic("t", value),
        lambda: image_text.decode_partition(0, value, 1),
        lambda: image_text.decode_broker(0, value, 1),
        lambda: image_text.decode_overrides("t", value),
    )
    for read in readers:
        # Any other exception fails the test.
        with suppress(ProtocolError):
            read()
