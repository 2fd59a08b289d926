"""A store behind a socket: what is its own beyond what every store promises."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from forebay.coordination.socket.client import SocketStore
from forebay.coordination.socket.server import PAGE_KEYS, WATCHES_MAX
from forebay.coordination.sqlite import SqliteStore
from forebay.coordination.store import Event, EventKind, Put, Store, StoreAway, StoreError
from support.brokers.served_store import Serving
from support.machines.manual_clock import ManualClock


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    opened = Serving(await SqliteStore.open(tmp_path / "store.db"))
    yield opened
    await opened.close()


async def next_deletion(store: Store, prefix: str, from_revision: int) -> str:
    async with asyncio.timeout(60):
        async for events, _ in store.watch(prefix, from_revision):
            for event in events:
                if event.kind is EventKind.DELETE:
                    return event.kv.key
    raise AssertionError("the watch ended")


async def first_events(store: Store, from_revision: int) -> tuple[list[Event], int]:
    return await anext(aiter(store.watch("", from_revision)))


def refuse_writes(serving: Serving, refuse: bool) -> None:
    """As a file system does that has become read-only, or is full."""
    serving.sqlite.file.connection.execute(f"PRAGMA query_only={'ON' if refuse else 'OFF'}")


async def test_what_one_client_writes_the_others_read_and_watch(serving: Serving) -> None:
    one, two = await serving.client(), await serving.client()
    written = await one.txn(puts=[Put(key="a", value=bytes(range(256)))])
    item = await two.get("a")
    assert item is not None
    assert item.value == bytes(range(256))
    async for events, revision in two.watch("a", 1):
        assert [event.kv.value for event in events] == [bytes(range(256))]
        assert revision == written.revision
        break
    assert (await one.identity()) == (await serving.sqlite.identity())
    await one.close()
    await two.close()


async def test_a_range_of_many_pages_is_whole_and_of_one_revision(serving: Serving) -> None:
    store = await serving.client()
    count = PAGE_KEYS * 2 + 1
    for start in range(0, count, 100):
        keys = range(start, min(count, start + 100))
        last = await store.txn(puts=[Put(key=f"k/{number:05}", value=b"") for number in keys])
    items, revision = await store.range("k/")
    assert [item.key for item in items] == [f"k/{number:05}" for number in range(count)]
    assert revision == last.revision
    await store.close()


async def test_a_lease_ends_at_once_when_its_process_does(serving: Serving) -> None:
    dying, other = await serving.client(), await serving.client()
    lease = await dying.lease(3600)
    written = await dying.txn(puts=[Put(key="brokers/1", value=b"", lease=lease.id)])
    await dying.close()
    assert await next_deletion(other, "brokers/", written.revision) == "brokers/1"
    await other.close()


async def test_a_lease_that_is_not_renewed_ends_and_one_that_is_stays(serving: Serving) -> None:
    """The silent client takes a lease in the same words, and then says nothing more."""
    store, silent = await serving.client(), serving.connected()
    kept = await store.lease(1)
    await store.txn(puts=[Put(key="brokers/1", value=b"", lease=kept.id)])
    lease_id = await asyncio.to_thread(_ask, silent, [1, "lease", [1]])
    put = [2, "txn", [[], [["brokers/2", "", lease_id]], []]]
    _, revision = await asyncio.to_thread(_ask, silent, put)
    assert await next_deletion(store, "brokers/", revision) == "brokers/2"
    assert kept.valid()
    assert await store.get("brokers/1") is not None
    silent.close()
    await store.close()


async def test_what_a_dead_process_held_goes_as_soon_as_the_disk_allows_it(serving: Serving) -> None:
    dying, other = await serving.client(), await serving.client()
    first, second = await dying.lease(3600), await dying.lease(3600)
    puts = [Put(key="brokers/1", value=b"", lease=first.id), Put(key="claims/1", value=b"", lease=second.id)]
    written = await dying.txn(puts=puts)
    refuse_writes(serving, True)
    await dying.close()
    with pytest.raises(StoreError):
        await other.txn(puts=[Put(key="a", value=b"")])
    assert len((await other.range(""))[0]) == 2
    refuse_writes(serving, False)
    await next_deletion(other, "", written.revision)
    assert (await other.range(""))[0] == []
    await other.close()


async def test_a_lease_that_another_has_ended_is_not_relied_on_while_the_disk_refuses_to_note_it(
    serving: Serving,
) -> None:
    holder, other = await serving.client(), await serving.client()
    lease = await holder.lease(3600)
    written = await holder.txn(puts=[Put(key="brokers/1", value=b"", lease=lease.id)])
    refuse_writes(serving, True)
    await other.revoke(lease.id)
    async with asyncio.timeout(60):
        await lease.lost.wait()
    refuse_writes(serving, False)
    assert await next_deletion(other, "brokers/", written.revision) == "brokers/1"
    await holder.close()
    await other.close()


async def test_a_client_is_told_that_another_has_ended_its_lease(serving: Serving) -> None:
    holder, other = await serving.client(), await serving.client()
    lease = await holder.lease(3600)
    await other.revoke(lease.id)
    async with asyncio.timeout(60):
        await lease.lost.wait()
    assert not lease.valid()
    await holder.close()
    await other.close()


async def test_when_the_process_with_the_store_ends_calls_fail_and_leases_are_lost(serving: Serving) -> None:
    ours, theirs = socket.socketpair()
    server = asyncio.create_task(serving.server.serve(ours))
    store = await SocketStore.open(theirs)
    lease = await store.lease(3600)
    watching = asyncio.create_task(first_events(store, 1))
    await asyncio.sleep(0.01)
    server.cancel()
    async with asyncio.timeout(60):
        await lease.lost.wait()
        with pytest.raises(StoreAway, match="has ended"):
            await watching
    with pytest.raises(StoreAway, match="has ended"):
        await store.get("a")
    await store.close()


async def test_a_lease_does_not_count_while_the_store_is_silent(serving: Serving) -> None:
    ours, theirs = socket.socketpair()
    clock = ManualClock()
    store = await SocketStore.open(theirs, clock, request_timeout_s=0.05)
    server = asyncio.create_task(serving.server.serve(ours))
    lease = await store.lease(8)
    server.cancel()  # its end is seen when the loop runs again, and this is before
    clock.advance(6_900)
    assert lease.valid()
    clock.advance(200)
    assert not lease.valid()
    await asyncio.gather(server, return_exceptions=True)
    await store.close()


async def test_a_silent_store_is_given_up_after_a_while() -> None:
    ours, theirs = socket.socketpair()
    store = await SocketStore.open(theirs, request_timeout_s=0.05)
    with pytest.raises(StoreAway, match="did not answer"):
        await store.get("a")
    await store.close()
    ours.close()


async def test_requests_that_nobody_waits_for_are_given_up_at_the_server(serving: Serving) -> None:
    store = await serving.client()
    for _ in range(3):
        waiting = [asyncio.create_task(first_events(store, 10_000)) for _ in range(WATCHES_MAX)]
        await store.get("a")
        for task in waiting:
            assert not task.done()
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    await store.close()


async def test_a_client_that_watches_too_much_is_told_so(serving: Serving) -> None:
    store = await serving.client()
    waiting = [asyncio.create_task(first_events(store, 10_000)) for _ in range(WATCHES_MAX + 1)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(StoreError, match="watches"):
        await waiting[-1]
    await store.close()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_failing_request_leaves_the_connection_usable(serving: Serving) -> None:
    store = await serving.client()
    with pytest.raises(StoreError):
        await store._ask("txn", "nonsense")
    assert await store.get("a") is None
    await store.close()


def _ask(connected: socket.socket, message: list[object]) -> Any:
    """One request by a client that does nothing by itself."""
    connected.setblocking(True)
    text = json.dumps(message).encode()
    connected.sendall(struct.pack(">I", len(text)) + text)
    (length,) = struct.unpack(">I", _exactly(connected, 4))
    return json.loads(_exactly(connected, length))[2]


def _exactly(connected: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += connected.recv(size - len(found))
    return found
