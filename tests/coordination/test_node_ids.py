"""The numbers of brokers: each is given once, whoever is running."""

from __future__ import annotations

import asyncio

from forebay.coordination.keys import Keys
from forebay.coordination.metadata import load
from forebay.coordination.permanent_values import allocate_node_id
from forebay.coordination.store import Put
from support.brokers.memory_store import MemoryStore

KEYS = Keys("test")


async def test_numbers_are_given_in_order_and_never_twice() -> None:
    store = MemoryStore()
    given = await asyncio.gather(*(allocate_node_id(store, KEYS) for _ in range(8)))
    assert sorted(given) == list(range(1, 9))


async def test_a_number_that_was_chosen_is_not_given_to_another() -> None:
    store = MemoryStore()
    # This is how a broker that runs says that the number is its own.
    await store.txn(puts=[Put(key=f"{KEYS.node_ids}2", value=b"its directory")])
    assert [await allocate_node_id(store, KEYS) for _ in range(3)] == [1, 3, 4]


async def test_clusters_count_for_themselves() -> None:
    store = MemoryStore()
    assert await allocate_node_id(store, KEYS) == 1
    assert await allocate_node_id(store, Keys("other")) == 1


async def test_the_image_does_not_mind() -> None:
    store = MemoryStore()
    await allocate_node_id(store, KEYS)
    assert not (await load(store, KEYS)).brokers
