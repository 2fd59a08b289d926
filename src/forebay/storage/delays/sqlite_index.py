"""The index of a partition's delayed messages as one SQLite file beside its log.

The position is stored in the same transaction as the changes. So after a kill the index is correct as of some
position, and after a power failure, too (a write-ahead log, synced when it is merged). Few pages of it are in
memory, however many messages wait.

Every call may wait for the device, and is for threads; calls are served one at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from forebay.errors import StorageError
from forebay.storage.delays.index import Ended, Entry, IndexState, Noted, Undecided
from forebay.storage.delays.open_files import OpenFiles
from forebay.wire.state.delay_notes import CancelKey, Change, NoMore, Waiting, parse_note

SUFFIXES = ("", "-wal", "-shm")
_CACHE_KIB = 256
_CANCELLED_MAX = 10_000
"""The number of cancellations that are remembered, for clients that repeat the request."""

_TABLES = """
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS waiting (
    id INTEGER PRIMARY KEY, due INTEGER NOT NULL, scheduled INTEGER NOT NULL, codec INTEGER NOT NULL,
    key BLOB, home INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_due ON waiting (due, id);
CREATE INDEX IF NOT EXISTS by_key ON waiting (key) WHERE key IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_home ON waiting (home);
CREATE TABLE IF NOT EXISTS undecided (
    home INTEGER PRIMARY KEY, producer INTEGER NOT NULL, note BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS out_of_order (
    id INTEGER PRIMARY KEY, note INTEGER NOT NULL, home INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS cancelled (number INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE);
"""
_COLUMNS = "id, due, scheduled, codec, key, body"


def connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


class SqliteDelayIndex:
    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        path: Path | None = None,
        files: OpenFiles | None = None,
    ) -> None:
        self._connect = connect
        self._path = path
        self._files = files
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._is_loaded = False
        self._place: tuple[object, object] | None = None
        """The topic and the position, as they are in the file."""
        self._pending = 0
        self._out_of_order = 0

    # -- following the log -----------------------------------------------------------------------------

    def load(self, topic_id: bytes) -> IndexState:
        with self._lock:
            self._is_loaded = False
            try:
                return self._load(topic_id)
            except sqlite3.OperationalError as error:
                raise StorageError(f"cannot open the index of delays {self._path}: {error}") from error
            except sqlite3.DatabaseError:
                self._remove()  # damaged: it is rebuilt from the log
                return self._load(topic_id)

    def _load(self, topic_id: bytes) -> IndexState:
        db = self._open()
        known = _known(db)
        if known.get("topic") != topic_id:
            with _transaction(db):
                _empty(db)
                _put(db, "topic", topic_id)
            known = {}
        pending = known.get("pending")
        if pending is None:
            (pending,) = db.execute("SELECT count(*) FROM waiting").fetchone()
        self._pending = int(pending)
        self._count_out_of_order(db)
        self._is_loaded = True
        return self._state(db)

    def clear(self) -> None:
        with self._using() as db:
            with _transaction(db):
                _empty(db)
            self._pending = self._out_of_order = 0
            self._state(db)

    def apply(self, entries: Iterable[Entry], position: int, leader_epoch: int) -> IndexState:
        before = self._pending, self._out_of_order
        with self._using() as db:
            try:
                with _transaction(db):
                    for entry in entries:
                        self._take(db, entry)
                    _put(db, "position", position)
                    _put(db, "leader_epoch", leader_epoch)
                    _put(db, "pending", self._pending)
            except BaseException:
                self._pending, self._out_of_order = before
                raise
            return self._state(db)

    def forget_below(self, start_offset: int) -> IndexState:
        with self._using() as db:
            with _transaction(db):
                gone = db.execute("DELETE FROM waiting WHERE home < ?", (start_offset,)).rowcount
                for table in ("undecided", "out_of_order"):
                    db.execute(f"DELETE FROM {table} WHERE home < ?", (start_offset,))
                _put(db, "pending", self._pending - gone)
            self._pending -= gone
            self._count_out_of_order(db)
            return self._state(db)

    def _take(self, db: sqlite3.Connection, entry: Entry) -> None:
        if isinstance(entry, Noted):
            self._note(db, entry.home, entry.changes)
            if not entry.bound:
                self._remember_cancelled(db, entry.changes)
        elif isinstance(entry, Undecided):
            # The first offset after the note is needed to read it: the note has one offset.
            assert entry.next_offset == entry.home + 1
            db.execute(
                "INSERT OR REPLACE INTO undecided VALUES (?, ?, ?)",
                (entry.home, entry.producer_id, entry.note),
            )
        else:
            self._end(db, entry)

    def _end(self, db: sqlite3.Connection, entry: Ended) -> None:
        of_producer = "FROM undecided WHERE producer = ?"
        if entry.commit:
            homes = db.execute(f"SELECT home {of_producer} ORDER BY home", (entry.producer_id,)).fetchall()
            for (home,) in homes:  # one note at a time: together they may be more than memory holds
                (note,) = db.execute("SELECT note FROM undecided WHERE home = ?", (home,)).fetchone()
                self._note(db, home, parse_note(note, home + 1).changes, is_late=True)
            self._count_out_of_order(db)
        db.execute(f"DELETE {of_producer}", (entry.producer_id,))

    def _note(
        self, db: sqlite3.Connection, home: int, changes: Sequence[Change], *, is_late: bool = False
    ) -> None:
        """`is_late`: it counts after others that follow it in the log."""
        before = home if is_late else None
        plain: list[tuple[object, ...]] = []
        for change in changes:
            if isinstance(change, Waiting) and change.schedule_key is None:
                plain.append(_row(change, home))
                continue
            self._insert(db, plain)
            if isinstance(change, Waiting):
                self._delete(db, "key = ? AND id != ?", [(change.schedule_key, change.id)], before)
                self._insert(db, [_row(change, home)])
            elif isinstance(change, CancelKey):
                self._delete(db, "key = ?", [(change.schedule_key,)], before)
            else:
                ids = [(id_,) for id_ in change.ids]
                self._delete(db, "id = ?", ids, before)
                if self._out_of_order and not is_late:
                    db.executemany("DELETE FROM out_of_order WHERE id = ?", ids)
                    self._count_out_of_order(db)
        self._insert(db, plain)

    def _insert(self, db: sqlite3.Connection, rows: list[tuple[object, ...]]) -> None:
        """Empties the list. A message that is carried over is in another note from now on."""
        if rows:
            before = db.total_changes
            db.executemany("INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            added = db.total_changes - before
            self._pending += added
            if added < len(rows):
                db.executemany("UPDATE waiting SET home = ? WHERE id = ?", [(row[5], row[0]) for row in rows])
            rows.clear()

    def _delete(
        self, db: sqlite3.Connection, which: str, values: Sequence[tuple[object, ...]], late_note: int | None
    ) -> None:
        """`late_note`: the offset of the note that ends them, if notes after it have counted before."""
        if late_note is not None:
            db.executemany(
                f"INSERT OR REPLACE INTO out_of_order SELECT id, {late_note:d}, home FROM waiting "
                f"WHERE {which} AND home > {late_note:d}",
                values,
            )
        before = db.total_changes
        db.executemany(f"DELETE FROM waiting WHERE {which}", values)
        self._pending -= db.total_changes - before

    def _count_out_of_order(self, db: sqlite3.Connection) -> None:
        (self._out_of_order,) = db.execute("SELECT count(*) FROM out_of_order").fetchone()

    def _remember_cancelled(self, db: sqlite3.Connection, changes: Sequence[Change]) -> None:
        ids = [(id_,) for change in changes if isinstance(change, NoMore) for id_ in change.ids]
        if ids:
            db.executemany("INSERT OR REPLACE INTO cancelled (id) VALUES (?)", ids)
            last = "(SELECT max(number) FROM cancelled)"
            db.execute(f"DELETE FROM cancelled WHERE number <= {last} - ?", (_CANCELLED_MAX,))

    # -- looking up ------------------------------------------------------------------------------------

    def due(self, now_ms: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        return self._find("due <= ? ORDER BY due, id", (now_ms,), count_max, bytes_max)

    def of_ids(self, ids: Sequence[int], *, bytes_max: int) -> list[Waiting]:
        found: list[Waiting] = []
        size = 0
        with self._using() as db:
            for id_ in ids:
                for row in db.execute(f"SELECT {_COLUMNS} FROM waiting WHERE id = ?", (id_,)):
                    message = Waiting(*row)
                    size += len(message.body)
                    if found and size > bytes_max:
                        return found
                    found.append(message)
        return found

    def waiting_under(self, keys: Sequence[bytes]) -> frozenset[bytes]:
        with self._using() as db:
            found = (db.execute("SELECT 1 FROM waiting WHERE key = ?", (key,)).fetchone() for key in keys)
            return frozenset(key for key, row in zip(keys, found, strict=True) if row is not None)

    def after(self, due_ms: int, id_: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        return self._find("(due, id) > (?, ?) ORDER BY due, id", (due_ms, id_), count_max, bytes_max)

    def noted_below(self, offset: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        return self._find("home < ? ORDER BY home, id", (offset,), count_max, bytes_max)

    def bytes_below(self, offset: int) -> int:
        with self._using() as db:
            found = db.execute("SELECT total(length(body)) FROM waiting WHERE home < ?", (offset,))
            return int(found.fetchone()[0])

    def ended_out_of_order(self, *, count_max: int) -> list[int]:
        with self._using() as db:
            return [id_ for (id_,) in db.execute("SELECT id FROM out_of_order LIMIT ?", (count_max,))]

    def cancelled(self, ids: Sequence[int]) -> set[int]:
        with self._using() as db:
            found = (db.execute("SELECT id FROM cancelled WHERE id = ?", (id_,)).fetchone() for id_ in ids)
            return {row[0] for row in found if row is not None}

    def _find(self, which: str, values: tuple[int, ...], count_max: int, bytes_max: int) -> list[Waiting]:
        found: list[Waiting] = []
        size = 0
        with self._using() as db:
            rows = db.execute(f"SELECT {_COLUMNS} FROM waiting WHERE {which} LIMIT ?", (*values, count_max))
            for row in rows:
                size += len(row[5])
                if found and size > bytes_max:
                    break
                found.append(Waiting(*row))
            rows.close()
        return found

    def _state(self, db: sqlite3.Connection) -> IndexState:
        known = _known(db)
        self._place = known.get("topic"), known.get("position")
        due = db.execute("SELECT due FROM waiting ORDER BY due, id LIMIT 1").fetchone()
        needed = ["min(home) FROM waiting", "min(home) FROM undecided"]
        if self._out_of_order:
            needed.append("min(note) FROM out_of_order")
        homes = [home for each in needed for (home,) in db.execute(f"SELECT {each}") if home is not None]
        return IndexState(
            position=known.get("position", 0),
            leader_epoch=known.get("leader_epoch", -1),
            pending=self._pending,
            next_due_ms=None if due is None else due[0],
            oldest_home=min(homes, default=None),
            out_of_order=self._out_of_order,
        )

    # -- the file --------------------------------------------------------------------------------------

    def sync(self) -> None:
        with self._using() as db:
            (is_busy, *_) = db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
            if is_busy:
                raise StorageError(f"somebody else uses the index of delays {self._path}")

    def close(self) -> None:
        with self._lock:
            self._close()
        if self._files is not None:
            self._files.closed(self)

    def rest(self) -> bool:
        """Close the file until it is needed; False while it is in use."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._disconnect()
            return True
        finally:
            self._lock.release()

    def _close(self) -> None:
        self._is_loaded = False
        self._disconnect()

    def _disconnect(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The database for one call. Errors become StorageError; a damaged file is removed."""
        with self._lock:
            if not self._is_loaded:
                raise StorageError(f"the index of delays {self._path} is not open")
            try:
                yield self._open()
            except sqlite3.OperationalError as error:
                raise StorageError(f"cannot use the index of delays {self._path}: {error}") from error
            except sqlite3.DatabaseError as error:
                self._remove()
                raise StorageError(f"the index of delays {self._path} is damaged: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._files is not None:
            self._files.used(self)
        if self._db is None:
            self._db = self._connect()
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA checkpoint_fullfsync = ON")  # for macOS: see storage/system_calls.py
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._db.executescript(_TABLES)
            if self._is_loaded:
                self._check_place(self._db)
        return self._db

    def _check_place(self, db: sqlite3.Connection) -> None:
        """The file was closed for a while: it must be the same, or the known state is wrong."""
        known = _known(db)
        if (known.get("topic"), known.get("position")) != self._place:
            self._close()
            raise StorageError(f"the index of delays {self._path} was changed by somebody else")

    def _remove(self) -> None:
        self._close()
        if self._path is not None:
            for suffix in SUFFIXES:
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


def _row(message: Waiting, home: int) -> tuple[object, ...]:
    id_, due_ms, scheduled_ms, codec, key, body = message
    return (id_, due_ms, scheduled_ms, codec, key, home, body)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _known(db: sqlite3.Connection) -> dict[str, Any]:
    return dict(db.execute("SELECT name, value FROM state"))


def _put(db: sqlite3.Connection, name: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def _empty(db: sqlite3.Connection) -> None:
    for table in ("waiting", "undecided", "out_of_order", "cancelled"):
        db.execute(f"DELETE FROM {table}")
    db.execute("DELETE FROM state WHERE name != 'topic'")


def index_in_file(file: Path, files: OpenFiles) -> SqliteDelayIndex:
    return SqliteDelayIndex(partial(connect, str(file)), file, files)
