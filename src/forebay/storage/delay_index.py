"""The index of what waits in a partition: derived from the delay notes in its log, one SQLite file beside it.

It says what waits by the log below some offset, its position, which is stored in the same transaction as
the changes. So a process that is killed leaves it right as of some position, and a loss of power does, too
(a write-ahead log, synced when it is merged). It may be thrown away at any time: the log has everything, and
is read again from its start. Few pages of it are in memory, however much waits.

Every call may wait for the device, and is for threads; one call at a time is served.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol, TypeAlias

from forebay.errors import StorageError
from forebay.wire.state.delay_notes import CancelKey, Change, Waiting, parse_note

FILE_NAME = "delays.sqlite"
_SUFFIXES = ("", "-wal", "-shm")
_CACHE_KIB = 1024

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
"""
_COLUMNS = "id, due, scheduled, codec, key, body"


class Noted(NamedTuple):
    """A note that counts from here on."""

    home: int
    """Its offset."""
    changes: Sequence[Change]


class Undecided(NamedTuple):
    """A note that counts if its transaction is committed."""

    home: int
    next_offset: int
    producer_id: int
    note: bytes
    """The value of its record."""


class Ended(NamedTuple):
    """A transaction was committed, or aborted."""

    producer_id: int
    commit: bool


Entry: TypeAlias = Noted | Undecided | Ended


class IndexState(NamedTuple):
    """What is known of an index."""

    position: int
    """The log below this offset is in it."""
    leader_epoch: int
    """Of the last batch below the position; -1 if there is none."""
    pending: int
    """How many messages wait."""
    next_due_ms: int | None
    oldest_home: int | None
    """The offset of the first note that something in the index needs; None when there is none."""


class DelayIndex(Protocol):
    def load(self, topic_id: bytes) -> IndexState:
        """What is known; an index of another topic is emptied first."""

    def clear(self) -> None:
        """Forget everything: the log will be read again."""

    def apply(self, entries: Iterable[Entry], position: int, leader_epoch: int) -> IndexState:
        """Take over what was read of the log up to this position."""

    def forget_below(self, start_offset: int) -> IndexState:
        """The log begins here now: what was noted below waits no more."""

    def due(self, now_ms: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """The first of those that are due, in the order of (due, id): at least one, if any is."""

    def of_ids(self, ids: Sequence[int], *, bytes_max: int) -> list[Waiting]:
        """Those of these ids that wait, in the order of the ids; only the first, if they are large."""

    def after(self, due_ms: int, id_: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """Those behind this place in the order of (due, id)."""

    def noted_below(self, offset: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        """Those whose notes lie below an offset, oldest note first."""

    def bytes_below(self, offset: int) -> int:
        """The size of the messages whose notes lie below an offset."""

    def close(self) -> None: ...


class DelayIndexes(Protocol):
    """The seam to the files of indexes."""

    def exists(self, directory: str) -> bool:
        """Whether the partition in this directory has an index."""

    def of(self, directory: str) -> DelayIndex:
        """The index of the partition in this directory, to be loaded."""


class DelayIndexFiles:
    def exists(self, directory: str) -> bool:
        return (Path(directory) / FILE_NAME).exists()

    def of(self, directory: str) -> DelayIndex:
        path = Path(directory) / FILE_NAME
        return SqliteDelayIndex(partial(_connect, str(path)), path)


def index_in_memory() -> DelayIndex:
    """For the simulator, which has no files. It survives being closed."""
    return _InMemory(partial(_connect, ":memory:"))


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


class SqliteDelayIndex:
    def __init__(self, connect: Callable[[], sqlite3.Connection], path: Path | None = None) -> None:
        self._connect = connect
        self._path = path
        self._lock = Lock()
        self._db: sqlite3.Connection | None = None
        self._pending = 0

    # -- following the log -----------------------------------------------------------------------------

    def load(self, topic_id: bytes) -> IndexState:
        with self._lock:
            try:
                return self._load(topic_id)
            except sqlite3.OperationalError as error:
                raise StorageError(f"cannot open the index of delays {self._path}: {error}") from error
            except sqlite3.DatabaseError:
                self._remove()  # damaged: it is made anew from the log
                return self._load(topic_id)

    def _load(self, topic_id: bytes) -> IndexState:
        db = self._open()
        found = db.execute("SELECT value FROM state WHERE name = 'topic'").fetchone()
        if found is None or found[0] != topic_id:
            with _transaction(db):
                _empty(db)
                _put(db, "topic", topic_id)
        (self._pending,) = db.execute("SELECT count(*) FROM waiting").fetchone()
        return self._state(db)

    def clear(self) -> None:
        with self._using() as db, _transaction(db):
            _empty(db)
        self._pending = 0

    def apply(self, entries: Iterable[Entry], position: int, leader_epoch: int) -> IndexState:
        before = self._pending
        with self._using() as db:
            try:
                with _transaction(db):
                    for entry in entries:
                        self._take(db, entry)
                    _put(db, "position", position)
                    _put(db, "leader_epoch", leader_epoch)
            except BaseException:
                self._pending = before
                raise
            return self._state(db)

    def forget_below(self, start_offset: int) -> IndexState:
        with self._using() as db:
            with _transaction(db):
                gone = db.execute("DELETE FROM waiting WHERE home < ?", (start_offset,)).rowcount
                db.execute("DELETE FROM undecided WHERE home < ?", (start_offset,))
            self._pending -= gone
            return self._state(db)

    def _take(self, db: sqlite3.Connection, entry: Entry) -> None:
        if isinstance(entry, Noted):
            self._note(db, entry.home, entry.changes)
        elif isinstance(entry, Undecided):
            # The first offset behind the note is needed to read it: the note has one offset.
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
                self._note(db, home, parse_note(note, home + 1).changes)
        db.execute(f"DELETE {of_producer}", (entry.producer_id,))

    def _note(self, db: sqlite3.Connection, home: int, changes: Sequence[Change]) -> None:
        plain: list[tuple[object, ...]] = []
        for change in changes:
            if isinstance(change, Waiting) and change.schedule_key is None:
                plain.append(_row(change, home))
                continue
            self._insert(db, plain)
            if isinstance(change, Waiting):
                self._replace(db, change, home)
            elif isinstance(change, CancelKey):
                self._delete(db, "key = ?", [(change.schedule_key,)])
            else:
                self._delete(db, "id = ?", [(id_,) for id_ in change.ids])
        self._insert(db, plain)

    def _replace(self, db: sqlite3.Connection, message: Waiting, home: int) -> None:
        self._delete(db, "key = ? AND id != ?", [(message.schedule_key, message.id)])
        self._insert(db, [_row(message, home)])

    def _insert(self, db: sqlite3.Connection, rows: list[tuple[object, ...]]) -> None:
        """Empties the list. A message that is carried on has another home from now on."""
        if rows:
            before = db.total_changes
            db.executemany("INSERT OR IGNORE INTO waiting VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            added = db.total_changes - before
            self._pending += added
            if added < len(rows):
                db.executemany("UPDATE waiting SET home = ? WHERE id = ?", [(row[5], row[0]) for row in rows])
            rows.clear()

    def _delete(self, db: sqlite3.Connection, which: str, values: list[tuple[object, ...]]) -> None:
        before = db.total_changes
        db.executemany(f"DELETE FROM waiting WHERE {which}", values)
        self._pending -= db.total_changes - before

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

    def after(self, due_ms: int, id_: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        return self._find("(due, id) > (?, ?) ORDER BY due, id", (due_ms, id_), count_max, bytes_max)

    def noted_below(self, offset: int, *, count_max: int, bytes_max: int) -> list[Waiting]:
        return self._find("home < ? ORDER BY home, id", (offset,), count_max, bytes_max)

    def bytes_below(self, offset: int) -> int:
        with self._using() as db:
            found = db.execute("SELECT total(length(body)) FROM waiting WHERE home < ?", (offset,))
            return int(found.fetchone()[0])

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
        known = dict(db.execute("SELECT name, value FROM state"))
        due = db.execute("SELECT due FROM waiting ORDER BY due, id LIMIT 1").fetchone()
        homes = [
            home
            for table in ("waiting", "undecided")
            for (home,) in db.execute(f"SELECT min(home) FROM {table}")
            if home is not None
        ]
        return IndexState(
            position=known.get("position", 0),
            leader_epoch=known.get("leader_epoch", -1),
            pending=self._pending,
            next_due_ms=None if due is None else due[0],
            oldest_home=min(homes, default=None),
        )

    # -- the file --------------------------------------------------------------------------------------

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The database for one call. What is wrong with it is a StorageError; damaged, it is removed."""
        with self._lock:
            if self._db is None:
                raise StorageError(f"the index of delays {self._path} is not open")
            try:
                yield self._db
            except sqlite3.OperationalError as error:
                raise StorageError(f"cannot use the index of delays {self._path}: {error}") from error
            except sqlite3.DatabaseError as error:
                self._remove()
                raise StorageError(f"the index of delays {self._path} is damaged: {error}") from error

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = self._connect()
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._db.executescript(_TABLES)
        return self._db

    def _remove(self) -> None:
        self._close()
        if self._path is not None:
            for suffix in _SUFFIXES:
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)


class _InMemory(SqliteDelayIndex):
    def close(self) -> None:
        """A file would keep everything."""


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


def _put(db: sqlite3.Connection, name: str, value: object) -> None:
    db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))


def _empty(db: sqlite3.Connection) -> None:
    for table in ("waiting", "undecided"):
        db.execute(f"DELETE FROM {table}")
    db.execute("DELETE FROM state WHERE name != 'topic'")
