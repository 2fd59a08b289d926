"""Producer ids, unique in the cluster: blocks are taken from the store, single ids from the block."""

from __future__ import annotations

import asyncio

from forebay.coordination.keys import Keys
from forebay.coordination.metadata import allocate_producer_ids
from forebay.coordination.store import Store, StoreError
from forebay.errors import ErrorCode, KafkaError

BLOCK = 1000


class ProducerIds:
    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._lock = asyncio.Lock()
        self._block = iter(range(0))

    async def next(self) -> int:
        """Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS while the store gives none: clients come back."""
        async with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate())
                producer_id = next(self._block)
            return producer_id

    async def _allocate(self) -> range:
        try:
            return await allocate_producer_ids(self._store, self._keys, BLOCK)
        except StoreError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id can be given: {error.message}"
            ) from error
