"""Blocks of producer ids do not overlap, however many brokers take them at once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from forebay.coordination.producer_id_counter import allocate_producer_ids, take_producer_ids
from support.brokers.followed import KEYS, following
from support.brokers.memory_store import MemoryStore


async def test_producer_ids_are_given_once() -> None:
    store = MemoryStore()
    blocks = await asyncio.gather(*(allocate_producer_ids(store, KEYS, 10) for _ in range(5)))
    assert sorted(number for block in blocks for number in block.ids) == list(range(50))


async def test_brokers_that_take_blocks_at_once_all_get_one() -> None:
    """The image of one may show only the last of them; then it takes another."""
    store = MemoryStore()
    async with AsyncExitStack() as stack:
        followed = [await stack.enter_async_context(following(store)) for _ in range(8)]
        blocks = await asyncio.gather(*(take_producer_ids(each, store, 10) for each in followed))
    given = [number for block in blocks for number in block]
    assert len(set(given)) == len(given) == 80
