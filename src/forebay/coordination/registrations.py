"""Registers brokers, and raises the format in which values are written.

The two exclude each other: a registration compares the format on which it was decided, and raising the format
checks the registrations again afterwards.
"""

from __future__ import annotations

from forebay.coordination.keys import Keys
from forebay.coordination.metadata import load
from forebay.coordination.store import Compare, Lease, Put, Store, StoreError
from forebay.core.cluster.registration import FIRST_FORMAT, BrokerRegistration
from forebay.core.cluster.stored.image_text import encode_broker
from forebay.core.cluster.stored.store_format import check_may_join, check_may_raise
from forebay.errors import KafkaError

_ATTEMPTS_MAX = 16
_DIGITS_MAX = 9


async def register_broker(
    store: Store, keys: Keys, broker: BrokerRegistration, lease: Lease, *, claimed_at: int = 0
) -> int:
    """Announce this broker for as long as the lease holds; returns its epoch.

    `claimed_at`: the revision at which it has claimed its node id, and nobody else may have since; 0 if it
    has not. Raises ConfigError if the others write values that this broker cannot read.
    """
    key = keys.broker(broker.id)
    in_force, raised_at = await _format(store, keys)
    check_may_join(broker, in_force)
    put = Put(key=key, value=encode_broker(broker), lease=lease.id)
    guards = [Compare.absent(key), Compare.unchanged(keys.format, raised_at)]
    if claimed_at:
        guards.append(Compare.unchanged(f"{keys.node_ids}{broker.id}", claimed_at))
    result = await store.txn(guards, [put])
    if not result.ok and await store.get(key) is None:
        raise StoreError(
            f"the format of the store was raised meanwhile, or another broker starts as node {broker.id}; "
            "try again"
        )
    if not result.ok:
        raise StoreError(f"another broker is registered as node {broker.id}; give each its own node.id")
    return result.revision


async def raise_format(store: Store, keys: Keys, level: int) -> None:
    """Let values be written in a newer format from now on (`core/cluster/stored/store_format.py`).

    When this returns, all brokers that are registered, or ever will be, read it. Raises KafkaError.
    """
    for _ in range(_ATTEMPTS_MAX):
        in_force, raised_at = await _format(store, keys)
        # Also if another broker has raised it: that one may not have checked yet.
        check_may_raise(await load(store, keys), level)
        if in_force >= level:
            return
        guard, put = Compare.unchanged(keys.format, raised_at), _format_put(keys, level)
        result = await store.txn([guard], [put])
        if not result.ok:
            continue
        # A broker may have registered since. Any later one compares the key that is being written.
        try:
            check_may_raise(await load(store, keys), level)
        except KafkaError:
            mine = Compare.unchanged(keys.format, result.revision)
            await store.txn([mine], [_format_put(keys, in_force)])
            raise
        return
    raise StoreError("too many brokers raise the format at once; try again")


async def _format(store: Store, keys: Keys) -> tuple[int, int]:
    """The format in force, and the revision that raised it; 0 if none has. Raises StoreError."""
    item = await store.get(keys.format)
    if item is None:
        return FIRST_FORMAT, 0
    if not item.value.isdigit() or len(item.value) > _DIGITS_MAX:
        raise StoreError(f"{item.key} in the store is no number: delete it (docs/operations.md)")
    return int(item.value), item.mod_revision


def _format_put(keys: Keys, level: int) -> Put:
    return Put(key=keys.format, value=str(level).encode())
