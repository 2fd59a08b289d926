"""Values that are written into the store once, and hold for as long as the cluster exists.

They are its id, the secret of its logins, and the node ids of its brokers. A node id belongs to one data
directory for ever, running or not: so a broker that is down while another joins keeps its id, although its
registration is gone.
"""

from __future__ import annotations

import logging
from hashlib import sha256

from forebay.coordination.keys import Keys
from forebay.coordination.store import Compare, Put, Store, StoreError

log = logging.getLogger(__name__)

_FIRST = 1
_ATTEMPTS_MAX = 64


async def ensure_cluster_id(store: Store, keys: Keys, candidate: str) -> str:
    """The id of the cluster: the stored one, or else the candidate, which becomes permanent."""
    return (await _ensure(store, keys.cluster_id, candidate.encode())).decode()


async def ensure_login_secret(store: Store, keys: Keys, candidate: bytes) -> bytes:
    """Likewise for the secret from which credentials of unknown users are made up."""
    stored = await _ensure(store, keys.login_secret, candidate.hex().encode())
    try:
        return bytes.fromhex(stored.decode())
    except ValueError:
        # It only has to be secret and the same everywhere.
        log.error("the secret in the store is not what a broker wrote", extra={"key": keys.login_secret})
        return sha256(stored).digest()


async def _ensure(store: Store, key: str, candidate: bytes) -> bytes:
    await store.txn([Compare.absent(key)], [Put(key=key, value=candidate)])
    item = await store.get(key)
    assert item is not None
    return item.value


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
