"""Batches of a log that cannot be read: damaged ones, and malformed ones with a valid CRC.

Clients wrote the latter, into a topic that does not examine its batches, or to a broker that checked less.
Their bytes are served unchanged, which is all that most topics promise. Code that has to read the records
skips such a batch as a whole, or stops at it. Each is counted, and named in the log, once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

REMEMBERED_MAX = 10_000
"""The maximum for one log. Beyond that they are skipped silently."""


class UnreadableBatches:
    __slots__ = ("_directory", "_lock", "_offsets", "on_found")

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._offsets: set[int] = set()
        self._lock = threading.Lock()
        self.on_found: Callable[[], None] | None = None
        """Called for each batch that was not known yet, in the thread that found it."""

    def __len__(self) -> int:
        return len(self._offsets)

    def pass_over(self, base_offset: int, reason: str) -> None:
        """Note a batch. Any thread."""
        with self._lock:
            if base_offset in self._offsets or len(self._offsets) >= REMEMBERED_MAX:
                return
            self._offsets.add(base_offset)
        log.warning(
            "a batch cannot be read and is passed over",
            extra={"directory": self._directory, "offset": base_offset, "reason": reason},
        )
        if self.on_found is not None:
            self.on_found()
