"""A store that was restored while a broker ran, and has come further than that broker had seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Delete, Event, MismatchReason, Put, StoreMismatch
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.restore_image import Restore
from forebay.core.cluster.stored.image_text import encode_topic
from forebay.core.cluster.stored.restore_text import encode_restore
from support.brokers.followed import KEYS, following
from support.brokers.local_cluster import eventually
from support.brokers.memory_store import MemoryStore


class InterruptedStore(MemoryStore):
    """Its watch is interrupted before its first events, until `goes_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.watched = asyncio.Event()
        self.ended = asyncio.Event()

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        self.watched.set()
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.ended.set()
            raise
        yield [], from_revision - 1
        async for each in super().watch(prefix, from_revision):
            yield each


async def store_with(*topics: str) -> MemoryStore:
    store = MemoryStore()
    await put_topics(store, *topics)
    return store


async def put_topics(store: MemoryStore, *topics: str) -> None:
    for name in topics:
        record = TopicRecord(name=name, topic_id=name.encode().ljust(16), assignment=((1,),))
        await store.txn(puts=[Put(key=KEYS.topic(name), value=encode_topic(record))])


async def restore(store: MemoryStore, metadata: Metadata, *, without: str, back: int = 0) -> None:
    """The store forgets a key and goes back, and another broker notices and writes the marker."""
    items, revision = await store.range("")
    kept = [item for item in items if item.key != without]
    store.keyspace.restore(kept, (), revision=revision - back, compacted=store.keyspace.compacted)
    marker = encode_restore(Restore(generation=1, id="r"))
    await store.txn(puts=[Put(key=metadata.keys.restored, value=marker)])


async def test_a_broker_that_has_seen_more_than_the_backup_does_not_go_on_with_it() -> None:
    store = await store_with("old", "since")
    async with following(store) as metadata:
        await restore(store, metadata, without=metadata.keys.topic("since"))
        await eventually(lambda: metadata.refused is not None)
        assert metadata.refused is not None
        assert metadata.refused.reason is MismatchReason.WENT_BACK
        assert set(metadata.image.topics) == {"old", "since"}, "nothing of it is believed"


async def test_a_watch_that_was_interrupted_during_a_restore_does_not_mix_two_histories() -> None:
    """The store is past the broker's revision again, and the marker lies before it: no event tells."""
    store = InterruptedStore()
    await put_topics(store, "old", "since")
    async with following(store) as metadata:
        await restore(store, metadata, without=metadata.keys.topic("since"), back=1)
        await put_topics(store, "later")
        store.goes_on.set()
        await eventually(lambda: metadata.refused is not None)
        assert set(metadata.image.topics) == {"old", "since"}


async def test_a_watch_that_was_interrupted_goes_on() -> None:
    store = InterruptedStore()
    await put_topics(store, "old")
    async with following(store) as metadata:
        await put_topics(store, "later")
        store.goes_on.set()
        await eventually(lambda: set(metadata.image.topics) == {"old", "later"})
        assert metadata.refused is None and not metadata.behind


async def test_a_broker_that_has_seen_no_more_goes_on() -> None:
    store = await store_with("old")
    async with following(store) as metadata:
        await restore(store, metadata, without="")
        await eventually(lambda: metadata.image.restore.generation == 1)
        assert metadata.refused is None
        assert metadata.image.unsettled == {"old"}


async def test_a_wait_for_a_change_ends_when_the_store_is_not_believed() -> None:
    """The revision would be reached by another history, which does not have the change."""
    store = await store_with("old", "since")
    async with following(store) as metadata:
        waiting = asyncio.create_task(metadata.wait_for(metadata.image.revision + 100))
        await restore(store, metadata, without=metadata.keys.topic("since"))
        with pytest.raises(StoreMismatch):
            await asyncio.wait_for(waiting, 60)
        with pytest.raises(StoreMismatch):
            await metadata.wait_for(metadata.image.revision + 100)


async def test_a_change_that_meets_another_history_ends_the_watch() -> None:
    """No event would tell: the store went back and came further again without the watch's notice."""
    store = InterruptedStore()
    await put_topics(store, "old", "since")
    async with following(store) as metadata:
        await store.watched.wait()
        await restore(store, metadata, without=metadata.keys.topic("since"), back=1)
        await put_topics(store, "later")
        record = TopicRecord(name="later", topic_id=b"another".ljust(16), assignment=((1,),))
        with pytest.raises(StoreMismatch):
            await metadata.change(lambda _: [TopicPut(record=record)])
        assert metadata.refused is not None, "the broker knows at once"
        assert metadata.behind and store.known.contents_refused
        await asyncio.wait_for(store.ended.wait(), 60)
        assert set(metadata.image.topics) == {"old", "since"}


async def test_what_is_so_already_is_looked_up_where_the_watch_is_late() -> None:
    """The image has a topic that was deleted since, and creating it again must not be called done."""
    store = InterruptedStore()
    await put_topics(store, "old")
    async with following(store) as metadata:
        await store.watched.wait()
        record = metadata.image.topics["old"].record
        await store.txn(deletes=[Delete(key=KEYS.topic("old"))])

        def plan(image: ClusterImage) -> list[Change]:
            return [] if "old" in image.topics else [TopicPut(record=record)]

        changing = asyncio.create_task(metadata.change(plan))
        await eventually(lambda: store.keyspace.get(KEYS.topic("old")) is not None)
        store.goes_on.set()
        assert "old" in (await asyncio.wait_for(changing, 60)).topics


@pytest.mark.parametrize("turns", range(4))
async def test_loads_that_meet_another_history_while_the_watch_ends(turns: int) -> None:
    """After an outage many load at once, some of them while the watch is ending."""
    store = InterruptedStore()
    await put_topics(store, "old", "since")
    async with following(store) as metadata:
        await store.watched.wait()
        await restore(store, metadata, without=metadata.keys.topic("since"), back=1)
        await put_topics(store, "later")
        with pytest.raises(StoreMismatch):
            await metadata.catch_up()
        for _ in range(turns):
            await asyncio.sleep(0)
        with pytest.raises(StoreMismatch):
            await metadata.catch_up()
