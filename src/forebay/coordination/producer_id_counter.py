"""The counter of producer ids in the store, and blocks of ids that are allocated from it.

Everything else that a broker takes from the store is in its image, and the image is only built from a trusted
store. A block of ids would come from an answer alone. The answer may come from an older state of the store
that others have written to, so that its revision proves nothing (`store_identity.py`). Such a state allocates
ids that other brokers have, or will get when the newer state is back. Two producers with one id are treated
as the same: a message of the second is acknowledged as a repeat of the first, and is not stored.

So a block is valid once the image shows the counter at exactly the revision that allocated it. Until then
none of its ids is used. A block that the image does not show is given up; there are plenty of ids.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from forebay.coordination.keys import Keys
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Compare, KeyValue, Put, Store, StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.core.partition.folds.aliases import PRODUCER_IDS_END

_ATTEMPTS_MAX = 16
_DIGITS_MAX = 19
_WATCH_LATE_S = 1.0


class UnreadableCounter(StoreError):
    """The stored next producer id is not a number."""


class Block(NamedTuple):
    ids: range
    revision: int
    """The revision of the transaction that allocated it; 0 if there was nothing to allocate."""


async def take_producer_ids(metadata: Metadata, store: Store, count: int, *, floor: int = 0) -> range:
    """Allocate a block of ids that nobody else ever gets; all below `floor` are in use already.

    Raises StoreError, and allocates nothing while the store is not trusted.
    """
    for _ in range(_ATTEMPTS_MAX):
        if metadata.refused is not None:
            raise metadata.refused
        block = await allocate_producer_ids(store, metadata.keys, count, floor=floor)
        image = await _image_at(metadata, block.revision)
        if image.producer_ids_revision == block.revision:
            return block.ids
        # The store has changed its identity, or another broker allocated a block right after this one.
    raise StoreError("too many brokers ask for producer ids at once; try again")


async def _image_at(metadata: Metadata, revision: int) -> ClusterImage:
    """Does not wait for a late watch: ids are allocated while the store answers."""
    try:
        async with asyncio.timeout(_WATCH_LATE_S):
            return await metadata.wait_for(revision)
    except TimeoutError:
        await metadata.catch_up()
        return metadata.image


async def allocate_producer_ids(store: Store, keys: Keys, count: int, *, floor: int = 0) -> Block:
    """Allocate a block from whatever store answers: `take_producer_ids` verifies it."""
    for _ in range(_ATTEMPTS_MAX):
        item = await store.get(keys.producer_ids)
        stored = 0 if item is None else producer_id_in(item)
        first = max(stored, floor)
        if first + count > PRODUCER_IDS_END:
            raise StoreError("all producer ids of this cluster are given out")
        if first + count == stored:
            return Block(range(first, first), 0)  # only the floor was requested, and it is reached
        guard = Compare.unchanged(keys.producer_ids, 0 if item is None else item.mod_revision)
        put = Put(key=keys.producer_ids, value=str(first + count).encode())
        result = await store.txn([guard], [put])
        if result.ok:
            return Block(range(first, first + count), result.revision)
    raise StoreError("too many brokers ask for producer ids at once; try again")


def producer_id_in(item: KeyValue) -> int:
    """The stored next producer id. Raises UnreadableCounter."""
    if not item.value.isdigit() or len(item.value) > _DIGITS_MAX:
        raise UnreadableCounter(
            f"{item.key} in the store is no number: set it above all producer ids in use (docs/operations.md)"
        )
    return int(item.value)
