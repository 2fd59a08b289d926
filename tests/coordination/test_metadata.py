"""The image of a process follows the store, and its writes never overtake another's."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from forebay.config import broker_config
from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata, load
from forebay.coordination.permanent_values import ensure_cluster_id
from forebay.coordination.registrations import register_broker
from forebay.coordination.store import Delete, Put, StoreError
from forebay.core.cluster.config_changes import Alteration, AlterOp, Resource, alter_configs
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, PartitionPut
from forebay.core.cluster.images.deleted_topics import TombstoneDeleted
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.resources import ResourceType
from forebay.core.cluster.topics.topic_requests import NewTopic, create_partitions, create_topic, delete_topic
from forebay.errors import ErrorCode, KafkaError
from support.brokers.followed import KEYS, following
from support.brokers.memory_store import MemoryStore

CONFIG = broker_config()
T = Resource(type=ResourceType.TOPIC, name="t")


async def with_broker(store: MemoryStore) -> int:
    lease = await store.lease(5)
    return await register_broker(store, KEYS, BrokerRegistration(id=1, host="h", port=9, rack="r"), lease)


def creating(name: str, **more: int) -> NewTopic:
    topic_id = name.encode().ljust(16, b"-")
    return NewTopic(name=name, topic_id=topic_id, num_partitions=more.get("partitions", 2))


def setting(name: str, value: str) -> Alteration:
    return Alteration(name=name, op=AlterOp.SET, value=value)


async def create(metadata: Metadata, name: str) -> ClusterImage:
    return await metadata.change(lambda image: create_topic(image, CONFIG, creating(name)))


async def test_a_change_is_visible_when_it_returns_and_after_a_restart() -> None:
    store = MemoryStore()
    epoch = await with_broker(store)
    async with following(store) as metadata:
        image = await create(metadata, "t")
        assert image is metadata.image
        assert len(image.topics["t"].partitions) == 2
        assert image.brokers[1] == BrokerRegistration(id=1, host="h", port=9, rack="r", epoch=epoch)
        await metadata.change(lambda image: alter_configs(image, CONFIG, T, [setting("segment.ms", "7")]))
        await metadata.change(lambda image: create_partitions(image, "t", 5, None))
        assert metadata.image == await load(store, KEYS)
        assert metadata.image.topic_config("t").overrides == {"segment.ms": "7"}
        assert len(metadata.image.topics["t"].partitions) == 5


async def test_deleting_leaves_nothing_behind() -> None:
    store = MemoryStore()
    await with_broker(store)
    async with following(store) as metadata:
        before = (await store.range(KEYS.root))[0]
        image = await create(metadata, "t")
        state = PartitionState(index=1, leader=1, leader_epoch=1, isr=(1,), replicas=(1,))
        topic_id = image.topics["t"].topic_id
        image = await metadata.change(lambda _: [PartitionPut(topic_id=topic_id, state=state)])
        assert image.topics["t"].partitions[1].partition_epoch == image.revision
        await metadata.change(lambda image: alter_configs(image, CONFIG, T, [setting("segment.ms", "7")]))
        await metadata.change(lambda image: delete_topic(image, CONFIG, "t"))
        *left, tombstone = (await store.range(KEYS.root))[0]
        assert left == before
        assert tombstone.key == KEYS.tombstone(topic_id)
        assert metadata.image.deleted[topic_id].name == "t"
        await metadata.change(lambda _: [TombstoneDeleted(topic_id=topic_id)])
        assert (await store.range(KEYS.root))[0] == before
        assert not metadata.image.deleted
        assert metadata.image.topics == {}


@pytest.mark.parametrize("name", ["g", "a/b", "50% of ü", "../..", "%2F", "default"])
async def test_settings_of_a_group_are_found_again_whatever_its_name(name: str) -> None:
    store = MemoryStore()
    group = Resource(type=ResourceType.GROUP, name=name)
    key = "consumer.session.timeout.ms"
    async with following(store) as metadata:
        before = (await store.range(KEYS.root))[0]
        await metadata.change(lambda image: alter_configs(image, CONFIG, group, [setting(key, "50000")]))
        assert metadata.image == await load(store, KEYS)
        assert metadata.image.group_configs[name].overrides == {key: "50000"}
        gone = Alteration(name=key, op=AlterOp.DELETE, value=None)
        await metadata.change(lambda image: alter_configs(image, CONFIG, group, [gone]))
        assert metadata.image.group_configs == {}
        assert (await store.range(KEYS.root))[0] == before


async def test_a_stale_plan_is_made_again_on_what_won() -> None:
    store = MemoryStore()
    await with_broker(store)
    async with following(store) as one, following(store) as two:
        await create(one, "t")
        await two.wait_for(one.image.revision)
        await asyncio.gather(
            one.change(lambda image: alter_configs(image, CONFIG, T, [setting("segment.ms", "1")])),
            two.change(lambda image: alter_configs(image, CONFIG, T, [setting("segment.bytes", "200")])),
        )
        await one.wait_for(two.image.revision)
        await two.wait_for(one.image.revision)
        assert one.image.topic_config("t").overrides == {"segment.ms": "1", "segment.bytes": "200"}
        assert one.image == two.image


async def test_of_two_creators_one_is_told_that_the_topic_exists() -> None:
    store = MemoryStore()
    await with_broker(store)
    async with following(store) as one, following(store) as two:
        results = await asyncio.gather(create(one, "t"), create(two, "t"), return_exceptions=True)
        errors = [result for result in results if isinstance(result, KafkaError)]
        assert [error.code for error in errors] == [ErrorCode.TOPIC_ALREADY_EXISTS]


async def test_a_plan_that_never_wins_gives_up() -> None:
    store = MemoryStore()
    await with_broker(store)
    async with following(store) as metadata:
        await create(metadata, "t")

        def overtaken(image: ClusterImage) -> Sequence[Change]:
            stale = image.topics["t"]
            state = PartitionState(
                index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1,), partition_epoch=0
            )
            # Somebody changes the partition between every plan and its write.
            store.keyspace.apply(
                store.keyspace.plan([], [Put(key=KEYS.state(stale.topic_id, 0), value=VALUE)], []) or []
            )
            return [PartitionPut(topic_id=stale.topic_id, state=state)]

        with pytest.raises(StoreError, match="too fast"):
            await metadata.change(overtaken)


VALUE = b'{"leader":1,"leader_epoch":1,"isr":[1],"replicas":[1]}'


async def test_a_partition_does_not_outlive_its_topic() -> None:
    store = MemoryStore()
    await with_broker(store)
    async with following(store) as metadata:
        topic = (await create(metadata, "t")).topics["t"]
        state = PartitionState(index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1,))

        def overtaken(image: ClusterImage) -> Sequence[Change]:
            if image.topic_by_id(topic.topic_id) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "gone")
            # The topic is deleted between this plan and its write.
            gone = [Delete(key=KEYS.topic("t"))]
            store.keyspace.apply(store.keyspace.plan([], [], gone) or [])
            return [PartitionPut(topic_id=topic.topic_id, state=state)]

        with pytest.raises(KafkaError, match="gone"):
            await metadata.change(overtaken)
        assert await store.get(KEYS.state(topic.topic_id, 0)) is None


async def test_listeners_hear_of_each_image_before_the_one_who_waits() -> None:
    store = MemoryStore()
    await with_broker(store)
    heard: list[tuple[int, int]] = []
    async with following(store) as metadata:
        metadata.listen(lambda before, after: heard.append((len(before.topics), len(after.topics))))
        await create(metadata, "a")
        assert heard == [(0, 1)]
        await create(metadata, "b")
        assert heard == [(0, 1), (1, 2)]


async def test_a_follower_that_fell_behind_loads_anew() -> None:
    store = MemoryStore(history_max=4)
    await with_broker(store)
    metadata = await Metadata.open(store, KEYS)
    async with following(store) as other:
        for number in range(10):
            await create(other, f"t{number}")
        task = asyncio.create_task(metadata.follow())
        await metadata.wait_for(other.image.revision)
        assert metadata.image == other.image
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_who_waits_hears_when_following_ends() -> None:
    store = MemoryStore()
    metadata = await Metadata.open(store, KEYS)
    task = asyncio.create_task(metadata.follow())
    waiting = asyncio.create_task(metadata.wait_for(1000))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await task
    with pytest.raises(StoreError, match="no longer followed"):
        await waiting
    with pytest.raises(StoreError, match="no longer followed"):
        await metadata.wait_for(1000)


async def test_nothing_is_left_of_who_waits_no_more() -> None:
    """A cluster may not change for days, while somebody waits for the next change again and again."""
    async with following(MemoryStore()) as metadata:
        for _ in range(3):
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await metadata.wait_for(metadata.image.revision + 1)
        assert not metadata._waiters


async def test_a_node_id_is_used_once_at_a_time() -> None:
    store = MemoryStore()
    first = await store.lease(5)
    broker = BrokerRegistration(id=1, host="h", port=9)
    epoch = await register_broker(store, KEYS, broker, first)
    second = await store.lease(5)
    with pytest.raises(StoreError, match=r"node\.id"):
        await register_broker(store, KEYS, broker, second)
    await first.revoke()
    assert await register_broker(store, KEYS, broker, second) > epoch


async def test_a_broker_leaves_the_image_with_its_lease() -> None:
    store = MemoryStore()
    lease = await store.lease(5)
    await register_broker(store, KEYS, BrokerRegistration(id=1, host="h", port=9), lease)
    async with following(store) as metadata:
        assert set(metadata.image.brokers) == {1}
        await lease.revoke()
        _, revision = await store.range("")
        assert (await metadata.wait_for(revision)).brokers == {}


async def test_the_cluster_id_is_given_once() -> None:
    store = MemoryStore()
    assert await ensure_cluster_id(store, KEYS, "first") == "first"
    assert await ensure_cluster_id(store, KEYS, "second") == "first"
    assert (await load(store, KEYS)).cluster_id == "first"


async def test_other_clusters_in_the_same_store_do_not_matter() -> None:
    store = MemoryStore()
    await with_broker(store)
    await store.txn(puts=[Put(key=Keys("test2").topic("t"), value=b"garbage")])
    assert (await load(store, KEYS)).topics == {}
