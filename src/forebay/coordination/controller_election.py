"""Elects one holder: the process that creates the key under its lease holds it until the lease ends."""

from __future__ import annotations

import asyncio
import logging

from forebay.coordination.store import Compare, Delete, EventKind, KeyValue, Lease, LeaseLost, Put, Store

log = logging.getLogger(__name__)


async def campaign(store: Store, key: str, me: bytes, lease: Lease) -> int:
    """Wait until this process has the key, and return its create revision: the epoch to guard writes with.

    Raises LeaseLost when the lease ends while waiting. Cancelling it stops waiting.
    """
    while True:
        if not lease.valid():
            raise LeaseLost(f"the lease ended while waiting for {key}")
        result = await store.txn([Compare.absent(key)], [Put(key=key, value=me, lease=lease.id)])
        if result.ok:
            return result.revision
        holder, revision = await _holder(store, key)
        if holder is not None and holder.lease == lease.id:
            return holder.create_revision
        if holder is not None and not holder.lease:
            # No broker wrote that, and no lease would ever remove it.
            log.error("the controller's key was written over by hand; it is deleted", extra={"key": key})
            await store.txn([Compare.unchanged(key, holder.mod_revision)], deletes=[Delete(key=key)])
        elif holder is not None:
            await _until_free_or_lost(store, key, revision, lease)


async def _holder(store: Store, key: str) -> tuple[KeyValue | None, int]:
    found, revision = await store.range(key)
    return next((item for item in found if item.key == key), None), revision


async def _until_free_or_lost(store: Store, key: str, revision: int, lease: Lease) -> None:
    tasks = {
        asyncio.create_task(_until_free(store, key, revision)),
        asyncio.create_task(lease.lost.wait()),
    }
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_free(store: Store, key: str, revision: int) -> None:
    async for events, _ in store.watch(key, revision + 1):
        if not events:
            return  # the watch was interrupted: read the key's holder again
        own = [event for event in events if event.kv.key == key]
        if any(event.kind is EventKind.DELETE or not event.kv.lease for event in own):
            return  # deleted, or overwritten by hand: then no lease would ever remove it
