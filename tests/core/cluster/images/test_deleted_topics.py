"""Deleted topics are remembered for a while."""

from __future__ import annotations

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, TopicDeleted, TopicPut
from forebay.core.cluster.images.deleted_topics import DeletedTopic, TombstoneDeleted, TombstonePut, outlived
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.stored import image_text

EMPTY = ClusterImage(cluster_id="c")
DAY_MS = 86_400_000


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def deleted(*days: int) -> dict[bytes, DeletedTopic]:
    return {
        topic_id(day): DeletedTopic(topic_id=topic_id(day), name=f"t{day}", deleted_ms=day * DAY_MS)
        for day in days
    }


def going(found: list[TombstoneDeleted]) -> list[int]:
    return [int.from_bytes(each.topic_id, "big") for each in found]


def test_a_deletion_that_is_seen_is_noted_and_the_stored_tombstone_counts() -> None:
    image = EMPTY.apply([TopicPut(record=TopicRecord(name="t", topic_id=topic_id(1), assignment=((1,),)))])
    stored = DeletedTopic(topic_id=topic_id(1), name="t", deleted_ms=9)
    changes: list[Change] = [TopicDeleted(name="t"), TombstonePut(topic=stored)]
    for ordered in (changes, changes[::-1]):
        assert image.apply(ordered).deleted == {topic_id(1): stored}
    seen = image.apply([TopicDeleted(name="t")])
    assert seen.deleted[topic_id(1)].deleted_ms == 0
    assert seen.apply([TombstoneDeleted(topic_id=topic_id(1))]).deleted == {}


def test_an_unknown_topic_leaves_no_note() -> None:
    assert EMPTY.apply([TopicDeleted(name="t"), TombstoneDeleted(topic_id=topic_id(1))]) == EMPTY


def test_the_oldest_are_forgotten() -> None:
    limits = {"retention_ms": 90 * DAY_MS, "count_max": 10}
    assert going(outlived(deleted(1, 2, 50), now_ms=92 * DAY_MS, **limits)) == [1]
    assert going(outlived(deleted(1, 2, 50), now_ms=91 * DAY_MS, **limits)) == []
    assert going(outlived(deleted(*range(50, 62)), now_ms=62 * DAY_MS, **limits)) == [50, 51]


def test_what_is_only_noted_in_memory_is_not_deleted_from_the_store() -> None:
    noted = {topic_id(1): DeletedTopic(topic_id=topic_id(1), name="t", deleted_ms=0)}
    assert outlived(noted, now_ms=900 * DAY_MS, retention_ms=1, count_max=0) == []


def test_tombstones_read_back() -> None:
    stored = DeletedTopic(topic_id=topic_id(1), name="t", deleted_ms=9)
    assert image_text.decode_tombstone(topic_id(1), image_text.encode_tombstone(stored)) == stored
