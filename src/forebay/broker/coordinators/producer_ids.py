"""Producer ids, unique in the cluster: blocks are taken from the store, single ids from the block.

The end of the last block is saved on the disk before its first id is used. So this broker assigns no id
twice, even if the store was restored from a backup. Ids that other brokers have assigned are in the logs
(`raise_counter`), or skipped by the marker of the restore (`cluster/store_memory.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.metadata import Metadata
from forebay.coordination.producer_id_counter import (
    UnreadableCounter,
    allocate_producer_ids,
    take_producer_ids,
)
from forebay.coordination.store import Store, StoreError
from forebay.core.partition.folds.aliases import named_by
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

BLOCK = 1000


class ProducerIds:
    def __init__(self, store: Store, metadata: Metadata, data: DataDir, workers: WorkerThreads) -> None:
        self._store = store
        self._metadata = metadata
        self._data = data
        self._workers = workers
        self._lock = asyncio.Lock()
        self._block = iter(range(0))
        self._floor = 0
        """Greater than every id in the logs that this broker had when it started."""

    async def next(self) -> int:
        """A new id. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS while the store gives none: clients
        retry."""
        async with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate())
                producer_id = next(self._block)
            return producer_id

    async def raise_counter(self, tables: Iterable[ProducerTable]) -> None:
        """Raise the counter above all ids in this broker's logs, before it joins. Raises StoreError."""
        self._floor = max((end_of_ids(table) for table in tables), default=0)
        try:
            await allocate_producer_ids(self._store, self._metadata.keys, 0, floor=self._end)
        except UnreadableCounter as error:
            # No broker assigns an id until it is repaired; everything else continues.
            log.error("no producer ids can be given out", extra={"reason": error.message})

    @property
    def _end(self) -> int:
        """All ids below it are assigned."""
        known = self._data.store_evidence
        return max(self._floor, 0 if known is None else known.producer_ids_end)

    def _remember(self, end: int) -> None:
        self._data.update_store_evidence(lambda known: replace(known, producer_ids_end=end))

    async def _allocate(self) -> range:
        try:
            block = await take_producer_ids(self._metadata, self._store, BLOCK, floor=self._end)
            await self._workers.run(lambda: self._remember(block.stop))
            return block
        except OSError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id can be noted: {error}"
            ) from error
        except StoreError as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"no producer id can be given: {error.message}"
            ) from error


def end_of_ids(table: ProducerTable) -> int:
    """Greater than every producer id in a partition; an alias counts as the id of its producer."""
    return max((named_by(state.producer_id, 0).producer_id + 1 for state in table), default=0)
