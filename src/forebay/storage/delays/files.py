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


class _InMemory(SqliteDelayIndex):
    def close(self) -> None:
        """A file would keep everything."""


def index_in_memory() -> DelayIndex:
    """It survives being closed."""
    return _InMemory(partial(_connect, ":memory:"))


def _connect(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)
