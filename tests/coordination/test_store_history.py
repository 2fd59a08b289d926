"""A store that was restored while a broker ran, and has come further than that broker had seen."""

from __future__ import annotations

import asyncio

import pytest

from forebay.coordination.metadata import Metadata
from forebay.coordination.store import MismatchReason, Put, StoreMismatch
from forebay.core.cluster.image_text import encode_topic
from forebay.core.cluster.restore_image import Restore
from forebay.core.cluster.restore_text import encode_restore
from forebay.core.cluster.topic_image import TopicRecord
from support.brokers.followed import KEYS, following
from support.brokers.local_cluster import eventually
from support.brokers.memory_store import MemoryStore


async def store_with(*topics: str) -> MemoryStore:
    store = MemoryStore()
    for number, name in enumerate(topics):
        record = TopicRecord(name=name, topic_id=bytes([number] * 16), assignment=((1,),))
        await store.txn(puts=[Put(key=KEYS.topic(name), value=encode_topic(record))])
    return store


async def restore(store: MemoryStore, metadata: Metadata, *, without: str) -> None:
    """The store forgets a key, and another broker notices and writes the marker."""
    items, revision = await store.range("")
    kept = [item for item in items if item.key != without]
    store.keyspace.restore(kept, (), revision=revision, compacted=store.keyspace.compacted)
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
