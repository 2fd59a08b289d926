"""Folding a compacted topic: its partitions are closed one by one, each when its records are copied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.config import BrokerConfig, broker_config
from forebay.core.cluster.config_changes import Alteration, AlterOp, Resource, alter_configs
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import ConfigOwner, ConfigPut, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_folds import Folding, Stop
from forebay.core.cluster.images.topic_image import TopicImage, TopicRecord
from forebay.core.cluster.resources import ResourceType
from forebay.core.cluster.stored.image_text import decode_topic, encode_topic
from forebay.core.cluster.topics.fewer_partitions import (
    FoldRequest,
    close_copied,
    remove_closed,
    set_partitions,
)
from forebay.errors import KafkaError

TOPIC_ID = bytes(range(16))
NOW_MS = 1_800_000_000_000
DONE_MS = NOW_MS + 5_000


@pytest.fixture(scope="module")
def broker() -> BrokerConfig:
    return broker_config({})


def compacted(partitions: int, policy: str = "compact") -> ClusterImage:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=((1,),) * partitions)
    return ClusterImage(cluster_id="c").apply(
        [
            TopicPut(record=record, revision=1),
            ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"cleanup.policy": policy}),
        ]
    )


def folded(image: ClusterImage, broker: BrokerConfig, count: int) -> ClusterImage:
    return image.apply(set_partitions(image, broker, "t", FoldRequest(count=count, now_ms=NOW_MS)))


def topic_of(image: ClusterImage) -> TopicImage:
    return image.topics["t"]


def folding_of(image: ClusterImage) -> Folding:
    folding = topic_of(image).record.folding
    assert folding is not None
    return folding


def copied(image: ClusterImage, index: int, *, node_id: int = 1, epoch: int = 0) -> ClusterImage:
    return image.apply(
        close_copied(image, TOPIC_ID, index, node_id=node_id, leader_epoch=epoch, now_ms=DONE_MS)
    )


def closed(image: ClusterImage) -> list[int]:
    topic = topic_of(image)
    return [state.index for state in topic.partitions if topic.folded_into(state.index) is not None]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_partitions_close_in_their_order_when_they_are_copied(broker: BrokerConfig, policy: str) -> None:
    image = folded(compacted(6, policy), broker, 2)
    for index in range(2, 6):
        assert folding_of(image).next_copy == index
        assert closed(image) == list(range(2, index)), "those that are not copied yet are open"
        assert topic_of(image).path(index) == (index,)
        assert decode_topic("t", encode_topic(topic_of(image).record)) == topic_of(image).record
        assert folding_of(image).closed_ms == NOW_MS
        for other in set(range(8)) - {index}:
            assert copied(image, other) is not image and closed(copied(image, other)) == closed(image)
        image = copied(image, index)
    assert folding_of(image).next_copy is None and closed(image) == [2, 3, 4, 5]
    assert [topic_of(image).path(index)[-1] for index in range(6)] == [0, 1] * 3
    assert folding_of(image).closed_ms == DONE_MS, "the time of grace begins when all are copied"


def test_only_the_leader_closes_it_in_the_term_in_which_it_holds_it(broker: BrokerConfig) -> None:
    image = folded(compacted(4), broker, 2)
    for node_id, epoch in ((2, 0), (1, 1), (2, 1)):
        assert closed(copied(image, 2, node_id=node_id, epoch=epoch)) == []
    state = replace(topic_of(image).partitions[2], leader=2, leader_epoch=1)
    image = image.apply([PartitionPut(topic_id=TOPIC_ID, state=state)])
    assert closed(copied(image, 2)) == []
    changes = close_copied(image, TOPIC_ID, 2, node_id=2, leader_epoch=1, now_ms=DONE_MS)
    assert PartitionPut(topic_id=TOPIC_ID, state=state) in changes, "the store compares the state"
    assert closed(image.apply(changes)) == [2]
    assert close_copied(image, bytes(16), 2, node_id=2, leader_epoch=1, now_ms=DONE_MS) == []


def test_an_earlier_fold_stays_what_it_is(broker: BrokerConfig) -> None:
    image = folded(compacted(8), broker, 4)
    for index in range(4, 8):
        image = copied(image, index)
    while len(topic_of(image).partitions) > 4:
        image = image.apply(remove_closed(image, TOPIC_ID, dict.fromkeys(range(8), 0), 1))
    assert folding_of(image).copied is None
    image = folded(image, broker, 2)
    assert topic_of(image).path(7) == (3,), "which is open until it is copied"
    assert topic_of(image).folded_into(7) == Stop(3, 0) and topic_of(image).folded_into(3) is None
    image = copied(image, 2)
    assert topic_of(image).path(6) == (2, 0) and topic_of(image).path(7) == (3,)
    image = copied(image, 3)
    assert topic_of(image).path(7) == (3, 1)


def test_nothing_is_folded_or_grown_meanwhile(broker: BrokerConfig) -> None:
    begun = ended = folded(compacted(8), broker, 4)
    for index in range(4, 8):
        ended = copied(ended, index)
    for image in (begun, copied(begun, 4), ended):
        for count in (2, 5, 8, 16):
            with pytest.raises(KafkaError):
                folded(image, broker, count)


def test_settings_while_partitions_are_copied(broker: BrokerConfig) -> None:
    image, resource = folded(compacted(4), broker, 2), Resource(type=ResourceType.TOPIC, name="t")

    def altered(image: ClusterImage, name: str, value: str) -> bool:
        return bool(
            alter_configs(image, broker, resource, [Alteration(name=name, op=AlterOp.SET, value=value)])
        )

    assert altered(image, "segment.bytes", "100000")
    with pytest.raises(KafkaError, match="stays compacted"):  # only the last record of a key is copied
        altered(image, "cleanup.policy", "delete")
    with pytest.raises(KafkaError, match="being copied"):
        altered(image, "forebay.delay.enable", "true")


def test_deletions_stay_where_partitions_are_copied_until_they_are_gone(broker: BrokerConfig) -> None:
    """Another leader goes on with the copy, and must find the deletion of a value that was copied."""
    begun = folded(compacted(4), broker, 2)
    for image in (begun, copied(begun, 2), copied(copied(begun, 2), 3)):
        assert [folding_of(image).keeps_deletions(index) for index in range(4)] == [False, False, True, True]
    assert not folding_of(folded(compacted(4, "delete"), broker, 2)).keeps_deletions(3)


def test_an_ordinary_fold_copies_nothing(broker: BrokerConfig) -> None:
    image = folded(compacted(4, "delete"), broker, 2)
    assert folding_of(image).next_copy is None and closed(image) == [2, 3]
    assert b"copied" not in encode_topic(topic_of(image).record)
    assert close_copied(image, TOPIC_ID, 2, node_id=1, leader_epoch=0, now_ms=DONE_MS) == []
