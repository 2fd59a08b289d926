"""Views in the store: found again, and never at odds with topics, whoever else writes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from forebay.config import broker_config
from forebay.coordination.metadata import Plan, load
from forebay.coordination.registrations import register_broker
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, PartitionPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.stored.image_text import decode_view, encode_view
from forebay.core.cluster.topics.topic_requests import NewTopic, create_partitions, create_topic, delete_topic
from forebay.core.views.catalog import NewView, create_view, delete_view, materialize_view
from forebay.errors import ErrorCode, KafkaError
from support.brokers.followed import KEYS, following
from support.brokers.memory_store import MemoryStore

CONFIG = broker_config()
SEEN = NewView(
    name="seen", view_id=b"v" * 16, source="t", where="key = 'ü'", select="value.a", keep_tombstones=True
)


async def store_with_topic() -> MemoryStore:
    store = MemoryStore()
    registration = BrokerRegistration(id=1, host="h", port=9)
    await register_broker(store, KEYS, registration, await store.lease(5))
    async with following(store) as metadata:
        await metadata.change(lambda image: creating(image, "t"))
    return store


def creating(image: ClusterImage, name: str) -> list[Change]:
    topic_id = name.encode().ljust(16, b"-")
    return create_topic(image, CONFIG, NewTopic(name=name, topic_id=topic_id, num_partitions=2))


async def test_a_view_is_found_again_and_leaves_nothing_behind() -> None:
    store = await store_with_topic()
    async with following(store) as metadata:
        before = {item.key for item in (await store.range(KEYS.root))[0]}
        image = await metadata.change(lambda image: create_view(image, SEEN))
        assert image == await load(store, KEYS)
        stored = image.views["seen"]
        assert (stored.where, stored.select, stored.keep_tombstones) == ("key = 'ü'", "value.a", True)
        assert image.topic_names[stored.source_id] == "t"
        assert image.view_names == {b"v" * 16: "seen"}
        image = await metadata.change(lambda _: delete_view(stored))
        assert list(image.deleted) == [stored.view_id], "a deletion that was seen"
        assert replace(image, deleted={}) == await load(store, KEYS)
        assert (image.views, image.view_names) == ({}, {})
        assert {item.key for item in (await store.range(KEYS.root))[0]} == before


async def test_a_materialized_view_is_stored_with_its_topic_and_goes_with_it() -> None:
    store = await store_with_topic()
    new = replace(SEEN, materialize=True, topic_id=b"f" * 16, configs={"retention.ms": "5"})
    async with following(store) as metadata:
        before = {item.key for item in (await store.range(KEYS.root))[0]}
        image = await metadata.change(lambda image: materialize_view(image, CONFIG, new))
        assert image == await load(store, KEYS)
        assert (image.views, image.fills["seen"].where) == ({}, "key = 'ü'")
        assert len(image.topics["seen"].partitions) == 2
        with pytest.raises(KafkaError, match="'seen'"):
            await metadata.change(lambda image: delete_topic(image, CONFIG, "t"))
        with pytest.raises(KafkaError, match="grows with it"):
            await metadata.change(lambda image: create_partitions(image, "seen", 5, None))
        image = await metadata.change(lambda image: create_partitions(image, "t", 5, None))
        assert len(image.topics["seen"].partitions) == 5
        image = await metadata.change(lambda image: delete_topic(image, CONFIG, "seen"))
        assert image == await load(store, KEYS)
        assert (image.fills, image.view_names) == ({}, {})
        left = {item.key for item in (await store.range(KEYS.root))[0]}
        assert left - before == {KEYS.tombstone(topic_id) for topic_id in image.deleted}
        assert before <= left


def test_a_view_from_before_there_were_formats_is_read_and_one_of_a_later_format_is_known_as_such() -> None:
    names = '"id":"dnZ2dnZ2dnZ2dnZ2dnZ2dg","source":"dHR0dHR0dHR0dHR0dHR0dA"'
    old = decode_view("v", f'{{{names},"where":"key = 1","select":null,"keep_tombstones":true}}'.encode(), 1)
    assert (old.is_known, old.where, old.keep_tombstones, old.materialized) == (True, "key = 1", True, False)
    assert decode_view("v", encode_view(old), 1) == old
    later = decode_view("v", f'{{{names},"format":9,"joined_with":"u"}}'.encode(), 1)
    assert (later.is_known, later.view_id) == (False, b"v" * 16)


async def test_the_states_of_the_source_outlive_a_view() -> None:
    store = await store_with_topic()
    async with following(store) as metadata:
        state = PartitionState(index=1, leader=1, leader_epoch=4, isr=(1,), replicas=(1,))
        topic_id = metadata.image.topics["t"].topic_id
        await metadata.change(lambda _: [PartitionPut(topic_id=topic_id, state=state)])
        image = await metadata.change(lambda image: create_view(image, SEEN))
        assert image.topics["t"].partitions[1].leader_epoch == 4


async def refusal(early: Plan, late: Plan) -> tuple[KafkaError, ClusterImage]:
    """Two brokers plan on the same image, and `early` is written first: what the other one is told."""
    store = await store_with_topic()
    async with following(store) as one, following(store) as two:
        made, refused = await asyncio.gather(one.change(early), two.change(late), return_exceptions=True)
        assert isinstance(made, ClusterImage)
        assert isinstance(refused, KafkaError)
        return refused, await load(store, KEYS)


def view(image: ClusterImage) -> list[Change]:
    return create_view(image, SEEN)


def topic(image: ClusterImage) -> list[Change]:
    return creating(image, "seen")


def deletion(image: ClusterImage) -> list[Change]:
    return delete_topic(image, CONFIG, "t")


@pytest.mark.parametrize("view_first", [True, False])
async def test_a_name_is_given_once(view_first: bool) -> None:
    refused, image = await refusal(*((view, topic) if view_first else (topic, view)))
    assert refused.code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert ("seen" in image.topics, "seen" in image.views) == (not view_first, view_first)


async def test_a_source_is_not_deleted_under_a_view_that_another_makes() -> None:
    refused, image = await refusal(view, deletion)
    assert (refused.code, "'seen'" in refused.message) == (ErrorCode.POLICY_VIOLATION, True)
    assert "t" in image.topics


async def test_no_view_is_made_of_a_topic_that_another_deletes() -> None:
    refused, image = await refusal(deletion, view)
    assert refused.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert image.views == {}
