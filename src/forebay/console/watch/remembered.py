"""Names that are known for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_KEPT_MAX = 100_000


class Remembered:
    """Thread-safe. All are forgotten together, this long after the first: then they are looked up anew."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._since = 0.0

    def has(self, name: str) -> bool:
        with self._lock:
            return name in self._names and self._now() < self._since + self._seconds

    def add(self, name: str) -> None:
        now = self._now()
        with self._lock:
            if now >= self._since + self._seconds or len(self._names) >= _KEPT_MAX:
                self._names.clear()
            if not self._names:
                self._since = now
            self._names.add(name)
