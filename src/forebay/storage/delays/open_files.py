"""Limits the number of open index files: the least recently used one is closed for another.

An open SQLite file takes three descriptors and a cache, and most indexes are not needed most of the time: a
partition in which nothing is sent and nothing is due does not use its own. A file that was closed is opened
again when it is next used.
"""

from __future__ import annotations

from threading import Lock
from typing import Protocol


class Closable(Protocol):
    def rest(self) -> bool:
        """Close the file until it is needed; False while it is in use."""


class OpenFiles:
    """Any thread."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._lock = Lock()
        self._open: dict[Closable, None] = {}
        """The least recently used first."""

    def __len__(self) -> int:
        return len(self._open)

    def used(self, file: Closable) -> None:
        """Note that a file is about to be used, by a thread that locks it: it is open from now on."""
        with self._lock:
            self._open.pop(file, None)
            if len(self._open) >= self._count_max:
                self._close_one()
            self._open[file] = None

    def closed(self, file: Closable) -> None:
        with self._lock:
            self._open.pop(file, None)

    def _close_one(self) -> None:
        for other in self._open:
            if other.rest():
                del self._open[other]
                return
