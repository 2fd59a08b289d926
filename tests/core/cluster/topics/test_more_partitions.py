"""More partitions after fewer: which take messages again, where their numbers are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from forebay.config import BrokerConfig, broker_config
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import ConfigOwner, ConfigPut
from forebay.core.cluster.images.topic_folds import GENERATIONS_END, Fold, Folding, Stop
from forebay.core.cluster.stored.image_text import decode_topic, encode_topic
from forebay.core.cluster.topics.fewer_partitions import remove_closed
from forebay.core.cluster.topics.more_partitions import gathered_by, marker_stops, record_growth
from forebay.errors import ErrorCode, KafkaError
from support.brokers.folded_images import (
    ENDS,
    TOPIC_ID,
    emptied,
    folded,
    grown,
    settled,
    topic_of,
    with_topic,
)


@pytest.fixture(scope="module")
def broker() -> BrokerConfig:
    return broker_config({})


def folding_of(image: ClusterImage) -> Folding:
    folding = topic_of(image).record.folding
    assert folding is not None
    return folding


def test_closed_partitions_take_messages_again(broker: BrokerConfig) -> None:
    before = folded(with_topic(12), broker, 4)
    image = grown(before, broker, 8)
    topic, growth = topic_of(image), folding_of(image).growth
    assert len(topic.partitions) == 12 and topic.partitions == topic_of(before).partitions
    assert topic.closed_from == 8
    assert [topic.path(index)[-1] for index in range(12)] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3]
    assert growth is not None
    assert (growth.gathering, growth.draining) == ((4, 5, 6, 7), (0, 1, 2, 3))
    assert gathered_by(topic, 5) == {1: {(5, 0): None}}
    assert gathered_by(topic, 9) == {} == gathered_by(topic, 1)


def test_partitions_open_one_by_one_and_then_nothing_is_left_of_the_growth(broker: BrokerConfig) -> None:
    image = grown(folded(with_topic(12), broker, 4), broker, 8)
    assert record_growth(image, topic_of(image), {1, 9}, {9}) == []
    image = image.apply(record_growth(image, topic_of(image), {4, 6}, {0}))
    growth = folding_of(image).growth
    assert growth is not None and (growth.gathering, growth.draining) == ((5, 7), (1, 2, 3))
    assert [folding_of(image).is_gathering(index) for index in (4, 5, 9)] == [False, True, False]
    image = image.apply(record_growth(image, topic_of(image), {5, 7}, ()))
    growth = folding_of(image).growth
    assert growth is not None and growth.draining == (1, 2, 3)
    image = image.apply(record_growth(image, topic_of(image), (), {1, 2, 3}))
    assert folding_of(image).growth is None
    assert record_growth(image, topic_of(image), {4}, {0}) == []


def test_markers_go_where_transactions_may_be_open(broker: BrokerConfig) -> None:
    image = grown(folded(with_topic(12), broker, 4), broker, 8)
    assert marker_stops(topic_of(image), 5) == (Stop(5, None), Stop(1, 0))
    assert marker_stops(topic_of(image), 9) == (Stop(9, None), Stop(1, 0))
    assert marker_stops(topic_of(image), 1) == (Stop(1, None),)
    image = settled(image)
    assert marker_stops(topic_of(image), 5) == (Stop(5, None),)
    assert marker_stops(topic_of(image), 9) == (Stop(9, None), Stop(1, 0))


@pytest.mark.parametrize(("old", "few"), [(8, 2), (8, 1), (24, 2), (24, 4), (12, 3)])
def test_a_key_keeps_one_home_if_the_counts_divide_each_other(
    broker: BrokerConfig, old: int, few: int
) -> None:
    """Also for clients that still count all partitions, closed or gone."""
    for more in (count for count in range(few * 2, old + 1) if old % count == 0 and count % few == 0):
        image = grown(folded(with_topic(old), broker, few), broker, more)
        for hash_ in range(old):
            assert topic_of(image).path(hash_)[-1] == hash_ % more
        for again in (settled(image), emptied(settled(image))):
            assert [topic_of(again).path(hash_)[-1] for hash_ in range(old)] == [
                hash_ % more for hash_ in range(old)
            ]


def test_whoever_loses_messages_to_another_is_asked_for_their_numbers(broker: BrokerConfig) -> None:
    """For all ways of folding twice and growing in between."""
    for first, second, more in product((12, 8), (4, 2), range(2, 13)):
        if more <= second or more > first:
            continue
        before = folded(emptied(folded(with_topic(24), broker, first)), broker, second, allow_key_moves=True)
        after = grown(before, broker, more)
        old, new, growth = topic_of(before), topic_of(after), folding_of(after).growth
        assert growth is not None
        moved = {
            index for index in range(24) if old.stops(index)[-1].partition != new.stops(index)[-1].partition
        }
        assert set(range(second, more)) <= moved
        asked = {
            (named, source, generation, target)
            for target in growth.gathering
            for source, wanted in gathered_by(new, target).items()
            for (named, generation) in wanted
        }
        assert asked == {(index, *old.stops(index)[-1], new.stops(index)[-1].partition) for index in moved}
        assert all(second <= target < more for target in growth.gathering), (
            "an open partition is never closed"
        )
        assert set(growth.draining) == {source for _, source, _, _ in asked}
        for index in set(range(24)) - moved:
            assert old.stops(index)[-1] == new.stops(index)[-1], "its numbers stay where they are"


def test_each_fold_has_a_generation_of_its_own(broker: BrokerConfig) -> None:
    """Otherwise a partition would take what it has from the first fold for the newest."""
    image = settled(grown(folded(with_topic(8), broker, 4), broker, 8))
    assert folding_of(image).folds == () and folding_of(image).named_end == 0
    assert topic_of(image).closed_from == 8
    image = folded(image, broker, 2)
    assert folding_of(image).folds == (Fold(2, 8, 2, 1),)
    image = settled(grown(image, broker, 4))
    assert folding_of(image).folds == (Fold(4, 6, 2, 1), Fold(6, 8, 4, 2))
    image = folded(emptied(image), broker, 2)
    assert folding_of(image).folds == (Fold(2, 4, 2, 3), Fold(4, 6, 2, 1), Fold(6, 8, 4, 2))
    assert topic_of(image).stops(7) == (Stop(3, 2), Stop(1, 3))


def test_there_is_a_last_generation(broker: BrokerConfig) -> None:
    image = folded(with_topic(4), broker, 2)
    record = topic_of(image).record
    worn = replace(folding_of(image), generation=GENERATIONS_END - 1)
    topic = replace(topic_of(image), record=replace(record, folding=worn))
    with pytest.raises(KafkaError, match="512 times"):
        grown(replace(image, topics={"t": topic}), broker, 4)


def test_a_growing_topic_is_stored_and_read_back(broker: BrokerConfig) -> None:
    image = grown(folded(with_topic(8), broker, 2), broker, 4)
    for each in (image, settled(image), settled(grown(settled(image), broker, 8))):
        record = topic_of(each).record
        assert decode_topic("t", encode_topic(record)) == record
    assert b"former" not in encode_topic(topic_of(settled(image)).record)


def test_nothing_else_changes_the_count_meanwhile(broker: BrokerConfig) -> None:
    image = grown(folded(with_topic(12), broker, 4), broker, 8)
    for count in (2, 4, 9, 12):
        with pytest.raises(KafkaError, match="4, 5, 6, 7 are coming back") as caught:
            grown(image, broker, count)
        assert caught.value.code == ErrorCode.INVALID_PARTITIONS
    assert remove_closed(image, TOPIC_ID, ENDS, 1) == []
    image = image.apply(record_growth(image, topic_of(image), range(12), ()))
    with pytest.raises(KafkaError, match="transactions that were open"):
        grown(image, broker, 12)
    assert remove_closed(settled(image), TOPIC_ID, ENDS, 1)


def test_more_than_there_were(broker: BrokerConfig) -> None:
    """New ones have no numbers to gather."""
    image = grown(folded(with_topic(4), broker, 2), broker, 6)
    topic, growth = topic_of(image), folding_of(image).growth
    assert len(topic.partitions) == 6 == topic.closed_from
    assert growth is not None and growth.gathering == (2, 3)
    again = grown(settled(image), broker, 7)
    assert len(topic_of(again).partitions) == 7 and folding_of(again).growth is None


def test_closed_partitions_of_compacted_topics_are_not_taken_back(broker: BrokerConfig) -> None:
    """Newer values of their keys are in the others."""
    image = folded(with_topic(4), broker, 2)
    compact = ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"cleanup.policy": "compact"})
    with pytest.raises(KafkaError, match="cannot be taken back"):
        grown(image.apply([compact]), broker, 4)
    assert len(topic_of(grown(with_topic(2).apply([compact]), broker, 3)).partitions) == 3


def test_what_was_done_for_one_growth_does_not_count_for_the_next(broker: BrokerConfig) -> None:
    """A broker may take note of it much later."""
    first = grown(folded(with_topic(12), broker, 4), broker, 8)
    for later in (
        grown(settled(first), broker, 12),
        grown(folded(emptied(settled(first)), broker, 4), broker, 8),
    ):
        assert record_growth(later, topic_of(first), range(12), range(12)) == []
        assert record_growth(later, topic_of(later), range(12), range(12))
