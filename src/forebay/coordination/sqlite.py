"""The store of a single node: one SQLite file, owned by one process.

All keys are also held in memory, so reads and watches never wait for the disk. A transaction is decided on
the event loop, committed by the one thread that owns the connection (write-ahead log, synchronous FULL: it
has reached the disk), and only then becomes visible. Transactions run one after the other.

A lease lives as long as the process: keys that an earlier process left under its leases are deleted, with
events, when the file is opened. If the disk refuses to delete the keys of a lease that has ended, that is
tried until it succeeds: nobody else would end it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from forebay.coordination.keyspace import HISTORY_MAX, Keyspace
from forebay.coordination.store import (
    Compare,
    Delete,
    Event,
    EventKind,
    KeyValue,
    Put,
    StoreClosed,
    StoreError,
    StoreIdentity,
    TxnResult,
)
from forebay.coordination.store_identity import KnownStore

log = logging.getLogger(__name__)

T = TypeVar("T")

_EXPIRE_AGAIN_S = 1.0
_CLUSTER = "sqlite"
"""The file is part of the data directory, which has an id of its own."""
_PRAGMAS = ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL", "fullfsync=ON")
"""The last one is for macOS, where a sync ends in the drive's cache without it."""
_PRAGMAS_UNSYNCED = ("synchronous=OFF", "locking_mode=EXCLUSIVE", "journal_mode=WAL")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS kv (
    key TEXT PRIMARY KEY, value BLOB NOT NULL,
    create_revision INTEGER NOT NULL, mod_revision INTEGER NOT NULL, lease INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS event (
    revision INTEGER NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, value BLOB NOT NULL,
    create_revision INTEGER NOT NULL, lease INTEGER NOT NULL,
    PRIMARY KEY (revision, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (
    id INTEGER PRIMARY KEY CHECK (id = 1), current INTEGER NOT NULL, compacted INTEGER NOT NULL
);
INSERT OR IGNORE INTO revision VALUES (1, 0, 0);
"""


class SqliteLease:
    def __init__(self, store: SqliteStore, lease_id: int) -> None:
        self.id = lease_id
        self.lost = asyncio.Event()
        self._store = store

    def valid(self) -> bool:
        return not self.lost.is_set()

    async def revoke(self) -> None:
        await self._store.end_lease(self)


class SqliteStore:
    """Create one with `await SqliteStore.open(path)`."""

    def __init__(self, file: _File, keyspace: Keyspace, executor: ThreadPoolExecutor) -> None:
        self.file = file
        self.known = KnownStore()
        self._keyspace = keyspace
        self._executor = executor
        self._leases: dict[int, SqliteLease] = {}
        self._last_lease = 0
        self._closed = False
        self._turn = asyncio.Lock()
        self._writes: set[asyncio.Task[TxnResult]] = set()
        self._expiries: set[asyncio.Task[None]] = set()
        self._expiring_again: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, *, history_max: int = HISTORY_MAX, syncs: bool = True) -> SqliteStore:
        """Without `syncs` nothing that is written need survive a loss of power."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="forebay-store")
        try:
            file = await _in_thread(executor, lambda: _File(path, syncs=syncs))
            keyspace = Keyspace(history_max=history_max)
            await _in_thread(executor, lambda: file.load(keyspace))
            left_over = keyspace.plan_expiry()
            await _in_thread(executor, lambda: file.write(left_over, keyspace.compacted))
            keyspace.apply(left_over)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(file, keyspace, executor)

    async def identity(self) -> StoreIdentity:
        self._keyspace.check_open()
        revision = self._keyspace.revision
        return StoreIdentity(cluster=_CLUSTER, index=revision, revision=revision)

    async def range(self, prefix: str) -> tuple[list[KeyValue], int]:
        return self._keyspace.range(prefix)

    async def get(self, key: str) -> KeyValue | None:
        return self._keyspace.get(key)

    async def txn(
        self, compares: Sequence[Compare] = (), puts: Sequence[Put] = (), deletes: Sequence[Delete] = ()
    ) -> TxnResult:
        return await self._commit(lambda: self._keyspace.plan(compares, puts, deletes))

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[tuple[list[Event], int]]:
        return self._keyspace.watch(prefix, from_revision)

    async def next_events(self, prefix: str, from_revision: int) -> tuple[list[Event], int]:
        """The events that a watch would give next."""
        return await self._keyspace.next_events(prefix, from_revision)

    async def lease(self, ttl_s: float) -> SqliteLease:  # noqa: ARG002 - it lives as long as we do
        self._last_lease += 1
        self._keyspace.grant(self._last_lease)
        lease = self._leases[self._last_lease] = SqliteLease(self, self._last_lease)
        return lease

    async def expiring(self, ttl_s: float) -> int:
        lease = await self.lease(ttl_s)
        asyncio.get_running_loop().call_later(ttl_s, self._expire, lease)
        return lease.id

    async def revoke(self, lease_id: int) -> None:
        lease = self._leases.get(lease_id)
        if lease is not None:
            await self.end_lease(lease)

    def _expire(self, lease: SqliteLease) -> None:
        task = asyncio.create_task(self.end_lease(lease))
        self._expiries.add(task)
        task.add_done_callback(self._expiries.discard)

    async def end_lease(self, lease: SqliteLease) -> None:
        if self._leases.pop(lease.id, None) is None:
            return
        self._keyspace.end(lease.id)
        lease.lost.set()
        try:
            await self._commit(self._keyspace.plan_expiry)
        except StoreClosed:
            raise
        except StoreError as error:
            log.error("the keys of a lease that has ended stay for now", extra={"reason": error.message})
            if self._expiring_again is None:
                self._expiring_again = asyncio.create_task(self._expire_again())

    async def _expire_again(self) -> None:
        """Until no key of an ended lease is left."""
        while True:
            await asyncio.sleep(_EXPIRE_AGAIN_S)
            try:
                await self._commit(self._keyspace.plan_expiry)
            except StoreClosed:
                return
            except StoreError:
                continue  # it was logged
            self._expiring_again = None
            return

    async def close(self) -> None:
        """Wait for pending writes, then release the file. A second close does nothing."""
        async with self._turn:
            if self._closed:
                return
            self._closed = True
            self._keyspace.close()
            if self._expiring_again is not None:
                self._expiring_again.cancel()
            for lease in self._leases.values():
                lease.lost.set()
            self._leases.clear()
            await _in_thread(self._executor, self.file.close)
        self._executor.shutdown()

    async def _commit(self, plan: Callable[[], list[Event] | None]) -> TxnResult:
        # A caller that is cancelled must not leave the file ahead of memory: the write continues without it.
        task = asyncio.create_task(self._write(plan))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        return await asyncio.shield(task)

    async def _write(self, plan: Callable[[], list[Event] | None]) -> TxnResult:
        async with self._turn:
            events = plan()
            if events:
                compacted = self._keyspace.compacted
                await _in_thread(self._executor, lambda: self.file.write(events, compacted))
                self._keyspace.apply(events)
            return TxnResult(ok=events is not None, revision=self._keyspace.revision)


class _File:
    """The connection; used by the store's thread only."""

    def __init__(self, path: Path, *, syncs: bool) -> None:
        self._path = path
        _create(path)
        # With the file locked exclusively no other process can change the keys in memory.
        self.connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            for pragma in _PRAGMAS if syncs else _PRAGMAS_UNSYNCED:
                self.connection.execute(f"PRAGMA {pragma}")
            self.connection.executescript(_SCHEMA)
        except sqlite3.Error:
            self.connection.close()
            raise

    def load(self, keyspace: Keyspace) -> None:
        rows = self.connection.execute("SELECT key, value, create_revision, mod_revision, lease FROM kv")
        items = [_key_value(*row) for row in rows]
        rows = self.connection.execute(
            "SELECT kind, key, value, create_revision, revision, lease FROM event ORDER BY revision, key"
        )
        events = [Event(kind=EventKind(kind), kv=_key_value(*rest)) for kind, *rest in rows]
        current, compacted = self.connection.execute("SELECT current, compacted FROM revision").fetchone()
        keyspace.restore(items, events, revision=current, compacted=compacted)

    def write(self, events: Sequence[Event], compacted: int) -> None:
        if not events:
            return
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            for event in events:
                self._write_event(event)
            self.connection.execute("DELETE FROM event WHERE revision <= ?", (compacted,))
            self.connection.execute(
                "UPDATE revision SET current = ?, compacted = ?", (events[0].kv.mod_revision, compacted)
            )
            self.connection.execute("COMMIT")
        except sqlite3.Error:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        self.connection.close()

    def _write_event(self, event: Event) -> None:
        kv = event.kv
        if event.kind is EventKind.PUT:
            self.connection.execute(
                "INSERT OR REPLACE INTO kv VALUES (?, ?, ?, ?, ?)",
                (kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease),
            )
        else:
            self.connection.execute("DELETE FROM kv WHERE key = ?", (kv.key,))
        self.connection.execute(
            "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?)",
            (kv.mod_revision, kv.key, event.kind.value, kv.value, kv.create_revision, kv.lease),
        )


def _create(path: Path) -> None:
    """Create the file. It has the users' keys, which reveal weak passwords: only its owner may read it.

    SQLite gives the files beside it the same mode. An existing file keeps its mode.
    """
    with contextlib.suppress(OSError):  # SQLite gets the same error, and reports it
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _key_value(key: str, value: bytes, create_revision: int, mod_revision: int, lease: int) -> KeyValue:
    return KeyValue(
        key=key, value=value, create_revision=create_revision, mod_revision=mod_revision, lease=lease
    )


async def _in_thread(executor: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, call)
    except sqlite3.Error as error:
        hint = " (another process has it open)" if "locked" in str(error) else ""
        raise StoreError(f"the metadata store failed: {error}{hint}") from error
