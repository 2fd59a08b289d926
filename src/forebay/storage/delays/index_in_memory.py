"""A delay index without a file, for the simulator."""

from __future__ import annotations

import sqlite3
import weakref

from forebay.storage.delays.sqlite_index import SqliteDelayIndex, connect


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
        db = connect(":memory:")
        if self._synced is not None:
            db.deserialize(self._synced)
        weakref.finalize(self, db.close)  # whoever stops using the index does not close it
        return db
