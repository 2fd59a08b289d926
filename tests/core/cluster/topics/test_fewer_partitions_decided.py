"""Folding partitions: which go where, what is refused, and what goes when they are empty."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forebay.config import BrokerConfig, broker_config
from forebay.core.cluster.config_changes import Alteration, AlterOp, Resource, alter_configs
from forebay.core.cluster.image_changes import PartitionDeleted, PartitionPut, TopicPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.resources import ResourceType
from forebay.core.cluster.stored.image_text import decode_topic, encode_topic
from forebay.core.cluster.topics.fewer_partitions import (
    REMOVED_AT_ONCE_MAX,
    FoldRequest,
    remove_closed,
    set_partitions,
)
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from support.brokers.folded_images import ENDS, NOW_MS, TOPIC_ID, emptied, folded, topic_of, with_topic

GRACE_MS = 600_000


@pytest.fixture(scope="module")
def broker() -> BrokerConfig:
    return broker_config({})


@pytest.mark.parametrize("old", range(1, 25))
def test_a_key_has_one_home_during_and_after(broker: BrokerConfig, old: int) -> None:
    for new in range(1, old):
        image = with_topic(old)
        if old % new:
            with pytest.raises(KafkaError) as caught:
                folded(image, broker, new)
            assert caught.value.code == ErrorCode.INVALID_PARTITIONS
            continue
        for after in (folded(image, broker, new), emptied(folded(image, broker, new))):
            topic = topic_of(after)
            for hash_ in range(old * new):
                believed = {topic.path(hash_ % old)[-1], topic.path(hash_ % new)[-1]}
                assert believed == {hash_ % new}, "whichever count the producer knows"


def test_several_folds_lead_to_an_open_partition(broker: BrokerConfig) -> None:
    image = with_topic(24)
    for count in (12, 4, 2, 1):
        image = folded(image, broker, count)
        before = topic_of(image)
        for index in range(24):
            target = before.path(index)[-1]
            assert target < count and target == index % count
            assert before.folded_into(target) is None
            steps = list(before.path(index))
            assert steps == sorted(steps, reverse=True)
            if index >= count:
                stop = before.folded_into(index)
                assert stop is not None and stop.partition == next(step for step in steps if step != index)
        image = emptied(image)
        for index in range(24):
            assert topic_of(image).path(index) == (index % count,)
    assert topic_of(image).path(24) == () == topic_of(image).path(-1)


def test_an_ordinary_topic_has_no_folds() -> None:
    topic = topic_of(with_topic(3))
    assert topic.closed_from == 3
    assert [topic.path(index) for index in (-1, 0, 2, 3)] == [(), (0,), (2,), ()]
    assert topic.folded_into(2) is None
    assert b"fold" not in encode_topic(topic.record)


def test_a_record_is_stored_and_read_back(broker: BrokerConfig) -> None:
    image = folded(emptied(folded(with_topic(12), broker, 4)), broker, 2, drop=GRACE_MS)
    record = topic_of(image).record
    assert decode_topic("t", encode_topic(record)) == record
    assert record.folding is not None and record.folding.drop_ms == NOW_MS + GRACE_MS
    for bad in (b"[[4,12]]", b"[[4,12,0]]", b"[[4,12,5]]", b"[[4,4,4]]", b"null"):
        stored = encode_topic(record).replace(b"[[2,4,2,1],[4,12,4]]", bad)
        assert bad in stored
        with pytest.raises(ProtocolError):
            decode_topic("t", stored)


@pytest.mark.parametrize("count", [0, -1, 3, 5, 6, 20_000])
def test_counts_that_are_refused(broker: BrokerConfig, count: int) -> None:
    image = folded(with_topic(12), broker, 6)
    with pytest.raises(KafkaError) as caught:
        folded(image, broker, count)
    assert caught.value.code == ErrorCode.INVALID_PARTITIONS


def test_keys_may_move_if_the_administrator_says_so(broker: BrokerConfig) -> None:
    topic = topic_of(folded(with_topic(12), broker, 5, allow_key_moves=True))
    assert [topic.path(index)[-1] for index in range(12)] == [index % 5 for index in range(12)]


def test_settings_that_do_not_go_with_folds(broker: BrokerConfig) -> None:
    with pytest.raises(KafkaError, match=r"forebay\.delay\.enable"):
        folded(with_topic(4, forebay_delay_enable="true"), broker, 2)
    for early in (0, GRACE_MS - 1):
        with pytest.raises(KafkaError, match=r"forebay\.fold\.grace\.ms"):
            folded(with_topic(4), broker, 2, drop=early)
    compact = [Alteration(name="cleanup.policy", op=AlterOp.SET, value="compact")]
    resource = Resource(type=ResourceType.TOPIC, name="t")
    image = folded(with_topic(4), broker, 2)
    with pytest.raises(KafkaError, match="being folded"):
        alter_configs(image, broker, resource, compact)
    assert alter_configs(emptied(image), broker, resource, compact)


def test_internal_topics_keep_their_count(broker: BrokerConfig) -> None:
    image = with_topic(4, "__consumer_offsets")
    request = FoldRequest(count=2, now_ms=NOW_MS)
    with pytest.raises(KafkaError) as caught:
        set_partitions(image, broker, "__consumer_offsets", request)
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -- the end -----------------------------------------------------------------------------------------------


def test_only_the_last_ones_go_if_this_broker_leads_them(broker: BrokerConfig) -> None:
    image = folded(with_topic(6), broker, 2)
    led_by_two = replace(topic_of(image).partitions[4], leader=2)
    image = image.apply([PartitionPut(topic_id=TOPIC_ID, state=led_by_two)])
    assert remove_closed(image, TOPIC_ID, {2: 0, 3: 0}, 1) == []
    assert remove_closed(image, bytes(16), {5: 0}, 1) == []
    put, *deleted = remove_closed(image, TOPIC_ID, ENDS, 1)
    assert isinstance(put, TopicPut) and len(put.record.assignment) == 5
    assert deleted == [PartitionDeleted(topic_id=TOPIC_ID, state=topic_of(image).partitions[5])]
    image = image.apply([put, *deleted])
    assert [state.index for state in topic_of(image).partitions] == [0, 1, 2, 3, 4]
    assert remove_closed(image, TOPIC_ID, ENDS, 1) == []
    image = image.apply(remove_closed(image, TOPIC_ID, {4: 40}, 2))
    image = image.apply(remove_closed(image, TOPIC_ID, {0: 0, 1: 0, 2: 20, 3: 30}, 1))
    assert len(topic_of(image).partitions) == 2, "open ones never go"
    folding = topic_of(image).record.folding
    assert folding is not None and dict(folding.gone) == {5: 10_005, 4: 40, 3: 30, 2: 20}


def test_a_transaction_takes_away_a_bounded_number(broker: BrokerConfig) -> None:
    image = folded(with_topic(100), broker, 1)
    changes = remove_closed(image, TOPIC_ID, ENDS, 1)
    assert len(changes) == 1 + REMOVED_AT_ONCE_MAX
    assert len(topic_of(emptied(image)).partitions) == 1


def test_what_is_left_of_a_partition_that_is_gone_says_nothing(broker: BrokerConfig) -> None:
    image = emptied(folded(with_topic(4), broker, 2))
    late = PartitionState.initial(3, (9,))
    assert topic_of(image.apply([PartitionPut(topic_id=TOPIC_ID, state=late)])).partitions == (
        topic_of(image).partitions
    )
