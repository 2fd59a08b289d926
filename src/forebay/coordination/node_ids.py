"""The node ids of brokers. An id, once allocated, belongs to one data directory for ever, running or not.

So a broker that is down while another joins keeps its id, although its registration is gone.
"""

from __future__ import annotations

from forebay.coordination.keys import Keys
from forebay.coordination.store import Compare, Put, Store, StoreError

_FIRST = 1
_ATTEMPTS_MAX = 64


async def allocate_node_id(store: Store, keys: Keys) -> int:
    """Allocate the smallest free node id for good: write it down before it is used.

    If the caller dies first, the id is lost, which does no harm.
    """
    for _ in range(_ATTEMPTS_MAX):
        node_id = _smallest_free(await _taken(store, keys))
        if await _take(store, keys, node_id):
            return node_id
    raise StoreError("too many brokers ask for a node id at once; try again, or give each its node.id")


async def _take(store: Store, keys: Keys, node_id: int) -> bool:
    key = f"{keys.node_ids}{node_id}"
    return (await store.txn([Compare.absent(key)], [Put(key=key, value=b"")])).ok


async def _taken(store: Store, keys: Keys) -> set[int]:
    items, _ = await store.range(keys.node_ids)
    texts = (item.key.removeprefix(keys.node_ids) for item in items)
    return {int(text) for text in texts if text.isascii() and text.isdigit()}


def _smallest_free(taken: set[int]) -> int:
    return next(number for number in range(_FIRST, _FIRST + len(taken) + 1) if number not in taken)
