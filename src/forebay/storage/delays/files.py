"""Where the indexes of delays are: files beside the logs, or in memory for the simulator."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path

from forebay.storage.delays.index import DelayIndex
from forebay.storage.delays.open_files import OpenFiles
from forebay.storage.delays.sqlite_index import SqliteDelayIndex

FILE_NAME = "delays.sqlite"
_OPEN_MAX = 256


class DelayIndexFiles:
    def __init__(self, open_max: int = _OPEN_MAX) -> None:
        self._files = OpenFiles(open_max)

    def exists(self, directory: str) -> bool:
        return (Path(directory) / FILE_NAME).exists()

    def of(self, directory: str) -> DelayIndex:
        path = Path(directory) / FILE_NAME
        return SqliteDelayIndex(partial(_connect, str(path)), path, self._files)


class IndexInMemory(SqliteDelayIndex):
    """It survives being closed, and a loss of power as of when it was synced."""

    def __init__(self) -> None:
        super().__init__(self._begin)
        self._synced: bytes | None = None

    def close(self) -> None:
        """A file would keep everything."""

    def sync(self) -> None:
        with self._using() as db:
            self._synced = db.serialize()

    def lose_power(self) -> bool:
        """Whether anything is left."""
        super().close()
        return self._synced is not None

    def _begin(self) -> sqlite3.Connection:
        db = _connect(":memory:")
        if self._synced is not None:
            db.deserialize(self._synced)
        return db


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)
