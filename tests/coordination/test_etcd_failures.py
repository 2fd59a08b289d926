"""The store on etcd while servers of it die, stand still, come back and forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from forebay.config import broker_config
from forebay.coordination.etcd import watch as watch_module
from forebay.coordination.etcd.gateway import REQUEST_TIMEOUT_S
from forebay.coordination.etcd.store import PAGE_KEYS, EtcdStore
from forebay.coordination.store import TXN_OPERATIONS_MAX, Compacted, Compare, Event, Put, StoreError
from forebay.local.etcd import EtcdCluster
from support.brokers.shared_etcd import cluster_config

KEY = "/forebay/test/counter"


@asynccontextmanager
async def opened(etcd: EtcdCluster) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(cluster_config(etcd))
    try:
        yield store
    finally:
        await store.close()


def put(number: int) -> Put:
    return Put(key=KEY, value=str(number).encode())


async def count_up(store: EtcdStore, until: asyncio.Event) -> int:
    """Increments the counter by compare-and-set, reading again whenever an outcome is unknown."""
    known = 0
    while not until.is_set():
        try:
            item = await store.get(KEY)
            number = 0 if item is None else int(item.value)
            guard = Compare.unchanged(KEY, 0 if item is None else item.mod_revision)
            known += (await store.txn([guard], [put(number + 1)])).ok
        except StoreError:
            await asyncio.sleep(0.01)
    return known


async def numbers_seen(store: EtcdStore, seen: list[int]) -> None:
    async for events, _ in store.watch(KEY, 1):
        seen += [int(event.kv.value) for event in events]


async def value_of(store: EtcdStore) -> int:
    """Asks until there is an answer."""
    async with asyncio.timeout(60):
        while True:
            try:
                item = await store.get(KEY)
                return 0 if item is None else int(item.value)
            except StoreError:
                await asyncio.sleep(0.05)


async def until_above(seen: list[int], number: int) -> None:
    async with asyncio.timeout(60):
        while not seen or seen[-1] < number:  # noqa: ASYNC110 - the watch knows nobody to tell
            await asyncio.sleep(0.01)


async def test_transactions_and_a_watch_go_on_while_one_leader_after_the_other_is_killed(
    etcd: EtcdCluster,
) -> None:
    async with opened(etcd) as store:
        seen: list[int] = []
        done = asyncio.Event()
        watching = asyncio.create_task(numbers_seen(store, seen))
        counting = asyncio.create_task(count_up(store, done))
        for _ in range(2):
            await until_above(seen, (seen[-1] if seen else 0) + 20)
            leader = await asyncio.to_thread(etcd.leader)
            await asyncio.to_thread(etcd.servers[leader].kill)
            await until_above(seen, seen[-1] + 20)
            await asyncio.to_thread(etcd.restart, leader)
        done.set()
        known = await counting
        last = await value_of(store)
        await until_above(seen, last)
        watching.cancel()
        # Nothing that was confirmed is missing, nothing was counted twice, and the watch has no gap.
        assert known <= last
        assert seen == list(range(1, last + 1))


async def test_a_watch_leaves_a_server_that_stands_still(
    etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "SILENCE_S", 0.2)
    async with opened(etcd) as watcher, opened(etcd) as writer:
        await writer.txn(puts=[put(1)])
        for store in (watcher, writer):
            store.gateway.answer_timeout_s = 0.5
        seen: list[int] = []
        watching = asyncio.create_task(numbers_seen(watcher, seen))
        await until_above(seen, 1)
        held = watcher.gateway.current
        etcd.servers[held].pause()
        try:
            async with asyncio.timeout(60):
                while True:
                    try:
                        await writer.txn(puts=[put(2)])
                        break
                    except StoreError:
                        continue
            await until_above(seen, 2)
        finally:
            etcd.servers[held].resume()
            watching.cancel()
        assert set(seen) == {1, 2}


async def test_a_watch_that_comes_back_to_compacted_history_says_so(lone_etcd: EtcdCluster) -> None:
    async with opened(lone_etcd) as watcher:
        first = await watcher.txn(puts=[put(1)])
        events = watcher.watch(KEY, first.revision)
        assert [event.kv.value for event in (await anext(events))[0]] == [b"1"]
        await asyncio.to_thread(lone_etcd.servers[0].kill)
        await asyncio.to_thread(lone_etcd.restart, 0)
        async with opened(lone_etcd) as writer:
            for number in range(2, 5):
                await writer.txn(puts=[put(number)])
        lone_etcd.compact()
        with pytest.raises(Compacted):
            async with asyncio.timeout(60):
                assert await anext(events) == ([], first.revision), "it was interrupted"
                await anext(events)


async def test_a_watch_that_could_not_begin_at_once_says_that_it_was_interrupted(
    lone_etcd: EtcdCluster,
) -> None:
    async with opened(lone_etcd) as watcher:
        first = await watcher.txn(puts=[put(1)])
        await asyncio.to_thread(lone_etcd.servers[0].kill)
        events = watcher.watch(KEY, first.revision + 1)
        begun = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.2)  # so that its first stream fails
        await asyncio.to_thread(lone_etcd.restart, 0)
        async with asyncio.timeout(60):
            assert await begun == ([], first.revision)
            await watcher.txn(puts=[put(2)])
            assert [event.kv.value for event in (await anext(events))[0]] == [b"2"]


async def test_without_any_server_there_are_errors_until_one_is_back(
    lone_etcd: EtcdCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_module, "PATIENCE_S", 0.3)
    async with opened(lone_etcd) as store:
        await store.txn(puts=[put(1)])
        store.gateway.request_timeout_s = 0.5
        watching = asyncio.create_task(numbers_seen(store, []))
        await asyncio.to_thread(lone_etcd.servers[0].kill)
        with pytest.raises(StoreError, match=f"{lone_etcd.servers[0].client_port}.*start etcd"):
            await store.get(KEY)
        with pytest.raises(StoreError):
            await store.txn(puts=[put(2)])
        with pytest.raises(StoreError, match="watch on etcd"):
            async with asyncio.timeout(60):
                await watching
        await asyncio.to_thread(lone_etcd.restart, 0)
        store.gateway.request_timeout_s = REQUEST_TIMEOUT_S
        assert await value_of(store) in (1, 2)


async def test_a_cluster_without_majority_refuses_and_recovers(etcd: EtcdCluster) -> None:
    async with opened(etcd) as store:
        await store.txn(puts=[put(1)])
        store.gateway.request_timeout_s = 1.0
        for server in etcd.servers[:2]:
            await asyncio.to_thread(server.kill)
        with pytest.raises(StoreError):
            async with asyncio.timeout(60):
                await store.txn(puts=[put(2)])
        # Two that start must find each other: the first alone would wait for a leader for ever.
        for server in etcd.servers[:2]:
            server.start(etcd.initial_cluster)
        for server in etcd.servers[:2]:
            await asyncio.to_thread(server.wait_until_ready)
        store.gateway.request_timeout_s = REQUEST_TIMEOUT_S
        assert await value_of(store) in (1, 2)


class Hanging:
    """Takes requests, counts them, and hangs up without a word."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.paths.append(head.split(b" ")[1].decode())
        writer.transport.abort()


async def test_what_may_have_been_applied_is_sent_once_and_reads_go_on_elsewhere(
    one_etcd: EtcdCluster,
) -> None:
    hanging = Hanging()
    server = await asyncio.start_server(hanging.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"etcd://127.0.0.1:{port},{one_etcd.endpoints}/test"
    async with server:
        store = await EtcdStore.open(broker_config({"forebay.cluster": url}).cluster)
        try:
            hanging.paths.clear()
            store.gateway.current = 0
            with pytest.raises(StoreError, match="unknown"):
                await store.txn(puts=[put(99)])
            assert hanging.paths == ["/v3/kv/txn"]
            store.gateway.current = 0
            assert await store.get("/forebay/test/nothing-there") is None
            assert hanging.paths == ["/v3/kv/txn", "/v3/kv/range"]
        finally:
            await store.close()


async def test_a_large_range_comes_in_pages_of_one_revision(one_etcd: EtcdCluster) -> None:
    count = PAGE_KEYS * 2 + 500
    async with opened(one_etcd) as store:
        names = [f"/pages/{number:05}" for number in range(count)]
        for start in range(0, count, TXN_OPERATIONS_MAX):
            await store.txn(puts=[Put(key=name, value=b"x") for name in names[start : start + 128]])
        items, revision = await store.range("/pages/")
        assert [item.key for item in items] == names
        assert revision == max(item.mod_revision for item in items)


async def test_a_watch_takes_responses_larger_than_a_request_may_be(one_etcd: EtcdCluster) -> None:
    size = 1_000_000
    async with opened(one_etcd) as store:
        results = [await store.txn(puts=[Put(key="/large", value=bytes(size))]) for _ in range(3)]
        seen: list[Event] = []
        async with asyncio.timeout(60):
            async for events, _ in store.watch("/large", results[0].revision):
                seen += events
                if len(seen) == len(results):
                    break
        assert [event.kv.mod_revision for event in seen] == [result.revision for result in results]
        assert {len(event.kv.value) for event in seen} == {size}
