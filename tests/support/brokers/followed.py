"""The metadata of one process, kept up to date with the store while a test's block runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata
from support.brokers.memory_store import MemoryStore

KEYS = Keys("test")


@asynccontextmanager
async def following(store: MemoryStore) -> AsyncIterator[Metadata]:
    metadata = await Metadata.open(store, KEYS)
    task = asyncio.create_task(metadata.follow())
    try:
        yield metadata
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
