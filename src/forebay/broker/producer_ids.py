"""Producer ids, unique in the cluster: blocks are taken from the store, single ids from the block."""

from __future__ import annotations

import asyncio

from forebay.coordination.keys import Keys
from forebay.coordination.metadata import allocate_producer_ids
from forebay.coordination.store import Store

BLOCK = 1000


class ProducerIds:
    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._lock = asyncio.Lock()
        self._block = iter(range(0))

    async def next(self) -> int:
        async with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await allocate_producer_ids(self._store, self._keys, BLOCK))
                producer_id = next(self._block)
            return producer_id
