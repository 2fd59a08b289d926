"""The locations of delay indexes: files beside the logs, or in memory for the simulator."""

from __future__ import annotations

import sqlite3
import weakref
from functools import partial
from os import path
from pathlib import Path

from forebay.errors import StorageError
from forebay.storage.delays.index import DelayIndex
from forebay.storage.delays.open_files import OpenFiles
from forebay.storage.delays.sqlite_index import SqliteDelayIndex
from forebay.storage.system_calls import sync_directory

FILE_NAME = "delays.sqlite"
KEPT_NAME = ".delays"
"""Marks a log that has delay notes. The topic may accept none any more, and the index may be lost."""
_OPEN_MAX = 256


class DelayIndexFiles:
    def __init__(self, open_max: int = _OPEN_MAX) -> None:
        self._files = OpenFiles(open_max)

    def exists(self, directory: str) -> bool:
        # Strings all the way: this runs per partition.
        return path.lexists(f"{directory}/{FILE_NAME}") or path.lexists(f"{directory}/{KEPT_NAME}")

    def keep(self, directory: str) -> None:
        mark = Path(directory) / KEPT_NAME
        if mark.exists():
            return
        try:
            mark.touch()
            sync_directory(directory)
        except OSError as error:
            raise StorageError(f"cannot write {mark}: {error}") from error

    def of(self, directory: str) -> DelayIndex:
        file = Path(directory) / FILE_NAME
        return SqliteDelayIndex(partial(_connect, str(file)), file, self._files)


class IndexInMemory(SqliteDelayIndex):
    """It survives being closed, and after a power failure is as of its last sync."""

    def __init__(self) -> None:
        super().__init__(self._begin)
        self._synced: bytes | None = None

    def close(self) -> None:
        """A file would keep everything."""

    def sync(self) -> None:
        with self._using() as db:
            self._synced = db.serialize()

    def lose_power(self) -> bool:
        """Drop what was not synced; True if anything is left."""
        super().close()
        return self._synced is not None

    def _begin(self) -> sqlite3.Connection:
        db = _connect(":memory:")
        if self._synced is not None:
            db.deserialize(self._synced)
        weakref.finalize(self, db.close)  # whoever stops using the index does not close it
        return db


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)
