"""What every store promises, checked on each of them. Another implementation joins `STORES`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from forebay.coordination.controller_election import campaign
from forebay.coordination.sqlite import SqliteStore
from forebay.coordination.store import (
    TXN_OPERATIONS_MAX,
    Compacted,
    Compare,
    Delete,
    Event,
    EventKind,
    LeaseLost,
    Put,
    Store,
    StoreClosed,
)
from support.brokers.memory_store import MemoryStore
from support.brokers.served_store import ServedStore
from support.brokers.shared_etcd import OwnCorner

HISTORY = 20

OpenStore = Callable[[pytest.FixtureRequest, Path], Awaitable[Store]]


async def open_memory(request: pytest.FixtureRequest, directory: Path) -> Store:
    return MemoryStore(history_max=HISTORY)


async def open_sqlite(request: pytest.FixtureRequest, directory: Path) -> Store:
    return await SqliteStore.open(directory / "store.db", history_max=HISTORY)


async def open_one_etcd(request: pytest.FixtureRequest, directory: Path) -> Store:
    return await OwnCorner.open(request.getfixturevalue("one_etcd"))


async def open_three_etcd(request: pytest.FixtureRequest, directory: Path) -> Store:
    return await OwnCorner.open(request.getfixturevalue("three_etcd"))


async def open_socket(request: pytest.FixtureRequest, directory: Path) -> Store:
    return await ServedStore.open(directory / "store.db", history_max=HISTORY)


STORES: dict[str, OpenStore] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
    "socket": open_socket,
    "etcd": open_one_etcd,
    "three-etcd": open_three_etcd,
}


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await request.param(request, tmp_path)
    yield opened
    await opened.close()


def let_history_end(store: Store) -> None:
    """The embedded stores have kept the last events only; etcd has to be told."""
    if isinstance(store, OwnCorner):
        store.etcd.compact()


def put(key: str, value: str = "", lease: int = 0) -> Put:
    return Put(key=key, value=value.encode(), lease=lease)


def summary(events: list[Event]) -> list[tuple[str, str, bytes, int]]:
    return [(event.kind.value, event.kv.key, event.kv.value, event.kv.mod_revision) for event in events]


async def take(store: Store, prefix: str, from_revision: int, count: int) -> list[Event]:
    """The next `count` events of a watch."""
    events: list[Event] = []
    async with asyncio.timeout(60):
        async for more, _ in store.watch(prefix, from_revision):
            events += more
            if len(events) >= count:
                break
    return events


# -- keys and transactions -----------------------------------------------------------------------------


async def test_a_key_knows_when_it_was_made_and_last_changed(store: Store) -> None:
    first = await store.txn(puts=[put("a", "1")])
    second = await store.txn(puts=[put("a", "2")])
    assert first.ok
    assert second.revision == first.revision + 1
    item = await store.get("a")
    assert item is not None
    assert (item.value, item.create_revision, item.mod_revision) == (b"2", first.revision, second.revision)


async def test_a_key_made_again_has_a_new_create_revision(store: Store) -> None:
    await store.txn(puts=[put("a")])
    await store.txn(deletes=[Delete(key="a")])
    assert await store.get("a") is None
    again = await store.txn(puts=[put("a")])
    item = await store.get("a")
    assert item is not None
    assert item.create_revision == again.revision


async def test_range_is_sorted_exact_in_its_prefix_and_carries_the_revision(store: Store) -> None:
    await store.txn(puts=[put("b/2"), put("b/1"), put("b"), put("c/1"), put("a")])
    last = await store.txn(puts=[put("b/10")])
    items, revision = await store.range("b/")
    assert [item.key for item in items] == ["b/1", "b/10", "b/2"]
    assert revision == last.revision


async def test_a_transaction_is_one_revision(store: Store) -> None:
    await store.txn(puts=[put("old")])
    result = await store.txn(puts=[put("a"), put("b")], deletes=[Delete(key="old")])
    items, revision = await store.range("")
    assert {item.key: item.mod_revision for item in items} == {"a": result.revision, "b": result.revision}
    assert revision == result.revision


async def test_a_failed_compare_changes_nothing(store: Store) -> None:
    made = await store.txn(puts=[put("a", "1")])
    for compare in (
        Compare.absent("a"),
        Compare.unchanged("a", made.revision + 1),
        Compare.created("a", made.revision - 1),
        Compare.unchanged("missing", made.revision),
    ):
        result = await store.txn([compare], [put("a", "2"), put("b")])
        assert (result.ok, result.revision) == (False, made.revision)
    assert [item.value for item in (await store.range(""))[0]] == [b"1"]


async def test_all_compares_must_hold(store: Store) -> None:
    made = await store.txn(puts=[put("a")])
    changed = await store.txn(puts=[put("a", "x")])
    holds = [
        Compare.created("a", made.revision),
        Compare.unchanged("a", changed.revision),
        Compare.absent("b"),
    ]
    assert not (await store.txn([*holds, Compare.absent("a")], [put("b")])).ok
    assert (await store.txn(holds, [put("b")])).ok


async def test_a_transaction_without_effect_makes_no_revision(store: Store) -> None:
    made = await store.txn(puts=[put("a")])
    result = await store.txn([Compare.created("a", made.revision)], deletes=[Delete(key="missing")])
    assert (result.ok, result.revision) == (True, made.revision)


async def test_deleting_by_prefix(store: Store) -> None:
    await store.txn(puts=[put("s/1/0"), put("s/1/1"), put("s/10/0"), put("t")])
    await store.txn(deletes=[Delete(key="s/1/", prefix=True)])
    assert [item.key for item in (await store.range(""))[0]] == ["s/10/0", "t"]


async def test_a_transaction_is_limited(store: Store) -> None:
    most = [put(f"k{number}") for number in range(TXN_OPERATIONS_MAX)]
    guards = [Compare.absent(each.key) for each in most]
    assert (await store.txn(guards, most)).ok
    with pytest.raises(ValueError, match="129 operations"):
        await store.txn(puts=most, deletes=[Delete(key="x")])
    with pytest.raises(ValueError, match="129 operations"):
        await store.txn([*guards, Compare.absent("x")])


@pytest.mark.parametrize(
    ("puts", "deletes"),
    [
        ([put("a"), put("a")], []),
        ([put("a")], [Delete(key="a")]),
        ([put("a/1")], [Delete(key="a/", prefix=True)]),
    ],
)
async def test_a_transaction_touches_a_key_once(store: Store, puts: list[Put], deletes: list[Delete]) -> None:
    with pytest.raises(ValueError, match="a transaction"):
        await store.txn(puts=puts, deletes=deletes)


async def test_of_many_who_compare_and_set_one_wins(store: Store) -> None:
    results = await asyncio.gather(
        *(store.txn([Compare.absent("lock")], [put("lock", str(number))]) for number in range(20))
    )
    assert sum(result.ok for result in results) == 1


async def test_concurrent_increments_are_never_lost(store: Store) -> None:
    await store.txn(puts=[put("counter", "0")])

    async def increment() -> None:
        while True:
            item = await store.get("counter")
            assert item is not None
            value = put("counter", str(int(item.value) + 1))
            if (await store.txn([Compare.unchanged("counter", item.mod_revision)], [value])).ok:
                return

    await asyncio.gather(*(increment() for _ in range(8)))
    item = await store.get("counter")
    assert item is not None
    assert item.value == b"8"


# -- watches -------------------------------------------------------------------------------------------


async def test_a_watch_repeats_history_then_follows(store: Store) -> None:
    first = await store.txn(puts=[put("a/1", "x")])
    await store.txn(puts=[put("b/1")])
    third = await store.txn(deletes=[Delete(key="a/1")])
    watching = asyncio.create_task(take(store, "a/", first.revision, 3))
    await asyncio.sleep(0)
    last = await store.txn(puts=[put("a/2", "y")])
    assert summary(await watching) == [
        ("put", "a/1", b"x", first.revision),
        ("delete", "a/1", b"", third.revision),
        ("put", "a/2", b"y", last.revision),
    ]


async def test_a_watch_starts_at_the_revision_asked_for(store: Store) -> None:
    await store.txn(puts=[put("a", "1")])
    second = await store.txn(puts=[put("a", "2")])
    assert summary(await take(store, "", second.revision, 1)) == [("put", "a", b"2", second.revision)]


async def test_range_then_watch_leaves_no_gap_and_repeats_nothing(store: Store) -> None:
    await store.txn(puts=[put("n/0")])
    items, revision = await store.range("n/")
    for number in range(1, 6):
        await store.txn(puts=[put(f"n/{number}")])
    events = await take(store, "n/", revision + 1, 5)
    assert [item.key for item in items] + [event.kv.key for event in events] == [f"n/{n}" for n in range(6)]


async def test_the_events_of_a_revision_come_together(store: Store) -> None:
    result = await store.txn(puts=[put("a"), put("b"), put("c")])
    async for events, revision in store.watch("", result.revision):
        assert len(events) == 3
        assert revision == result.revision
        break


async def test_two_watchers_see_the_same(store: Store) -> None:
    one = asyncio.create_task(take(store, "", 1, 3))
    two = asyncio.create_task(take(store, "", 1, 3))
    for number in range(3):
        await store.txn(puts=[put("k", str(number))])
    assert await one == await two


async def test_a_watch_that_fell_behind_is_told_so(store: Store) -> None:
    for number in range(HISTORY * 2):
        await store.txn(puts=[put("k", str(number))])
    let_history_end(store)
    with pytest.raises(Compacted):
        await take(store, "", 1, 1)
    _, revision = await store.range("")
    await store.txn(puts=[put("k", "new")])
    assert [event.kv.value for event in await take(store, "", revision + 1, 1)] == [b"new"]


async def test_a_transaction_larger_than_the_history_can_still_be_watched(store: Store) -> None:
    result = await store.txn(puts=[put(f"k{number}") for number in range(HISTORY * 2)])
    assert len(await take(store, "", result.revision, HISTORY * 2)) == HISTORY * 2


async def test_closing_ends_watches_and_refuses_work(store: Store) -> None:
    watching = asyncio.create_task(take(store, "", 1, 1))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreClosed):
        await watching
    with pytest.raises(StoreClosed):
        await store.get("a")
    with pytest.raises(StoreClosed):
        await store.txn(puts=[put("a")])
    await store.close()


# -- leases --------------------------------------------------------------------------------------------


async def test_keys_end_with_their_lease(store: Store) -> None:
    lease = await store.lease(10)
    made = await store.txn(puts=[put("brokers/1", "b", lease.id), put("topics/t")])
    assert lease.valid()
    await lease.revoke()
    assert not lease.valid()
    assert lease.lost.is_set()
    assert await store.get("brokers/1") is None
    assert await store.get("topics/t") is not None
    events = await take(store, "brokers/", made.revision + 1, 1)
    assert [event.kind for event in events] == [EventKind.DELETE]


async def test_keys_end_by_themselves_under_a_lease_that_nobody_keeps(store: Store) -> None:
    lease = await store.expiring(1)
    made = await store.txn(puts=[put("verdicts/1", "b", lease), put("topics/t")])
    events = await take(store, "verdicts/", made.revision, 2)
    assert [event.kind for event in events] == [EventKind.PUT, EventKind.DELETE]
    assert await store.get("topics/t") is not None


async def test_a_lease_can_be_ended_by_its_number(store: Store) -> None:
    lease, other = await store.lease(10), await store.lease(10)
    await store.txn(puts=[put("brokers/1", "b", lease.id), put("brokers/2", "b", other.id)])
    await store.revoke(lease.id)
    await store.revoke(lease.id)
    assert [item.key for item in (await store.range("brokers/"))[0]] == ["brokers/2"]
    async with asyncio.timeout(60):
        await lease.lost.wait()
    assert other.valid()
    with pytest.raises(LeaseLost):
        await store.txn(puts=[put("brokers/1", "b", lease.id)])


async def test_a_key_put_again_without_the_lease_outlives_it(store: Store) -> None:
    lease = await store.lease(10)
    await store.txn(puts=[put("a", lease=lease.id)])
    await store.txn(puts=[put("a")])
    await lease.revoke()
    assert await store.get("a") is not None


async def test_an_ended_lease_takes_no_keys(store: Store) -> None:
    lease = await store.lease(10)
    await lease.revoke()
    await lease.revoke()
    with pytest.raises(LeaseLost):
        await store.txn(puts=[put("a", lease=lease.id)])
    assert await store.get("a") is None


async def test_closing_ends_leases(store: Store) -> None:
    lease = await store.lease(10)
    await store.close()
    assert lease.lost.is_set()


# -- election ------------------------------------------------------------------------------------------


async def test_one_holds_the_key_and_the_next_follows_with_a_larger_epoch(store: Store) -> None:
    first, second = await store.lease(10), await store.lease(10)
    epoch = await campaign(store, "controller", b"1", first)
    assert await campaign(store, "controller", b"1", first) == epoch
    waiting = asyncio.create_task(campaign(store, "controller", b"2", second))
    # A key that merely begins the same must wake nobody up for good.
    await store.txn(puts=[put("controller-like")])
    await store.txn(deletes=[Delete(key="controller-like")])
    done, _ = await asyncio.wait([waiting], timeout=0.02)
    assert not done
    await first.revoke()
    async with asyncio.timeout(60):
        assert await waiting > epoch
    holder = await store.get("controller")
    assert holder is not None
    assert holder.value == b"2"


async def test_waiting_ends_with_the_lease(store: Store) -> None:
    holder, waiter = await store.lease(10), await store.lease(10)
    await campaign(store, "controller", b"1", holder)
    waiting = asyncio.create_task(campaign(store, "controller", b"2", waiter))
    await asyncio.sleep(0.01)
    await waiter.revoke()
    with pytest.raises(LeaseLost):
        async with asyncio.timeout(60):
            await waiting
