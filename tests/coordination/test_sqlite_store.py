"""What only a store on disk can promise: it survives, it is alone, it fails cleanly."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.coordination.sqlite import SqliteStore
from forebay.coordination.store import Compacted, Compare, Delete, Event, Put, Store, StoreError
from support.brokers.memory_store import MemoryStore

HISTORY = 12


async def open_store(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, history_max=HISTORY)


@pytest.mark.parametrize(("syncs", "synchronous"), [(True, 2), (False, 0)])
async def test_what_is_written_is_forced_to_disk_unless_nobody_needs_that(
    tmp_path: Path, syncs: bool, synchronous: int
) -> None:
    store = await SqliteStore.open(tmp_path / "store.db", syncs=syncs)
    assert store.file.connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    assert store.file.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()


async def first_events(store: Store, from_revision: int) -> list[Event]:
    async for events, _ in store.watch("", from_revision):
        return events
    raise AssertionError


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "s.db")
    await store.txn(puts=[Put(key="a", value=b"1"), Put(key="b", value=b"\x00\xff")])
    await store.txn(puts=[Put(key="a", value=b"2")], deletes=[Delete(key="b")])
    before = await store.range("")
    history = await first_events(store, 1)
    await store.close()

    store = await open_store(tmp_path / "s.db")
    assert await store.range("") == before
    assert sorted(await first_events(store, 1), key=str) == sorted(history, key=str)
    assert (await store.txn(puts=[Put(key="c", value=b"")])).revision == before[1] + 1
    await store.close()


def _modes(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


async def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        store = await open_store(tmp_path / "s.db")
        await store.txn(puts=[Put(key="users/ada", value=b"keys")])
        modes = _modes(tmp_path)
        await store.close()
    finally:
        os.umask(before)
    assert "s.db-wal" in modes and set(modes.values()) == {0o600}, modes


async def test_leases_end_with_their_process_and_watchers_hear_of_it(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "s.db")
    lease = await store.lease(5)
    made = await store.txn(puts=[Put(key="brokers/1", value=b"", lease=lease.id), Put(key="t", value=b"")])
    await store.close()

    store = await open_store(tmp_path / "s.db")
    items, revision = await store.range("")
    assert [item.key for item in items] == ["t"]
    assert revision == made.revision + 1
    assert [event.kv.key for event in await first_events(store, made.revision + 1)] == ["brokers/1"]
    lease = await store.lease(5)
    again = await store.txn(puts=[Put(key="brokers/1", value=b"", lease=lease.id)])
    assert again.revision > made.revision
    await store.close()


async def test_history_stays_bounded_on_disk_and_compaction_survives(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    store = await open_store(path)
    for number in range(HISTORY * 4):
        await store.txn(puts=[Put(key="k", value=str(number).encode())])
    await store.close()
    with sqlite3.connect(path) as connection:
        (kept,) = connection.execute("SELECT count(*) FROM event").fetchone()
    connection.close()
    assert HISTORY <= kept <= HISTORY + 2
    store = await open_store(path)
    with pytest.raises(Compacted):
        await first_events(store, 1)
    await store.close()


async def test_a_second_opener_is_refused(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "s.db")
    with pytest.raises(StoreError, match="another process"):
        await open_store(tmp_path / "s.db")
    await store.close()


async def test_a_file_that_is_no_database_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="not a database"):
        await open_store(tmp_path / "s.db")


async def test_a_failed_write_changes_nothing_and_the_store_goes_on(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "s.db")
    await store.txn(puts=[Put(key="a", value=b"1")])
    limit = store.file.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
    with pytest.raises(StoreError, match="metadata store failed"):
        await store.txn(puts=[Put(key="b", value=b""), Put(key="c", value=bytes(5000))])
    store.file.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limit)
    assert [item.key for item in (await store.range(""))[0]] == ["a"]
    assert (await store.txn(puts=[Put(key="b", value=b"")])).revision == 2
    await store.close()


async def test_a_cancelled_caller_leaves_memory_and_file_in_step(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "s.db")
    for number in range(20):
        task = asyncio.create_task(store.txn(puts=[Put(key=f"k{number}", value=b"")]))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await store.txn(puts=[Put(key="last", value=b"")])).ok
    before = await store.range("")
    await store.close()
    store = await open_store(tmp_path / "s.db")
    assert await store.range("") == before
    await store.close()


Step = tuple[list[tuple[str, int]], dict[str, bytes], list[tuple[str, bool]], bool]
KEYS = st.sampled_from(["a", "a/1", "a/2", "b"])
STEP = st.tuples(
    st.lists(st.tuples(KEYS, st.integers(0, 6)), max_size=2),
    st.dictionaries(KEYS, st.binary(max_size=3), max_size=2),
    st.lists(st.tuples(KEYS, st.booleans()), max_size=2),
    st.booleans(),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, max_size=8))
def test_it_behaves_like_the_one_in_memory_whatever_happens(tmp_path: Path, steps: list[Step]) -> None:
    path = tmp_path / "model.db"
    for leftover in tmp_path.glob("model.db*"):
        leftover.unlink()
    asyncio.run(_compare(path, steps))


async def _compare(path: Path, steps: list[Step]) -> None:
    model, store = MemoryStore(history_max=HISTORY), await open_store(path)
    for compares, puts, deletes, restart in steps:
        arguments = (
            [Compare.unchanged(key, revision) for key, revision in compares],
            [Put(key=key, value=value) for key, value in puts.items()],
            [Delete(key=key, prefix=prefix) for key, prefix in deletes],
        )
        try:
            expected = await model.txn(*arguments)
        except ValueError:
            with pytest.raises(ValueError, match="a transaction"):
                await store.txn(*arguments)
            continue
        assert await store.txn(*arguments) == expected
        if restart:
            await store.close()
            store = await open_store(path)
        assert await store.range("") == await model.range("")
    await store.close()
