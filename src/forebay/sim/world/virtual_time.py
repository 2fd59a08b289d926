"""Virtual time: one queue of events, one source of chance, one trace that says what happened.

Nothing waits for real. The world takes the earliest event, moves its clock there and carries the event out.
Events of the same moment happen in the order they were scheduled, and whatever is random comes from streams
that are derived from the seed by name, so that asking more of one does not change what another gives.

The trace is hashed as it is written: two runs with the same hash did the same.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from heapq import heappop, heappush
from typing import Any

_EVENTS_MAX = 500_000
"""Ten times as many as a story usually has."""
_TRACE_LINES_KEPT = 400


class Breach(Exception):
    """Something that was promised did not hold."""


class World:
    def __init__(self, seed: int, *, on_line: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self.now = 0.0
        """Seconds since the world began."""
        self.events_count = 0
        self.breach: Breach | None = None
        """The first promise that was broken."""
        self.recent: deque[str] = deque(maxlen=_TRACE_LINES_KEPT)
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self._hash = blake2b(digest_size=16)
        self._on_line = on_line
        self._ignores = False

    def chance(self, name: str) -> random.Random:
        """A stream of random numbers that depends on the seed and this name only."""
        return random.Random(f"{self.seed}/{name}")

    # -- time ------------------------------------------------------------------------------------------

    def at(self, when: float, action: Callable[..., None], *args: Any) -> None:
        self._scheduled += 1
        heappush(self._queue, (when, self._scheduled, action, args))

    def after(self, delay_s: float, action: Callable[..., None], *args: Any) -> None:
        self._scheduled += 1
        heappush(self._queue, (self.now + delay_s, self._scheduled, action, args))

    def run_until(self, when: float, enough: Callable[[], bool] | None = None) -> None:
        """Let time pass until `when`, a breach, or until `enough` says so."""
        queue = self._queue
        while queue and queue[0][0] <= when and self.breach is None:
            due, _, action, args = heappop(queue)
            if due > self.now:
                self.now = due
            self.events_count += 1
            if self.events_count == _EVENTS_MAX:
                self.fail(f"{_EVENTS_MAX:,} events, and no end: somebody does the same again and again")
            action(*args)
            if enough is not None and enough():
                return
        if self.breach is None:
            self.now = max(self.now, when)

    # -- what happened -----------------------------------------------------------------------------------

    def note(self, kind: str, text: str) -> None:
        """One line of the trace: part of the hash."""
        line = f"{self.now:.6f} {kind} {text}"
        self._hash.update(line.encode())
        self._tell(line)

    @contextmanager
    def ignoring(self) -> Iterator[None]:
        """While a dead process is taken apart: its remarks and failures do not count."""
        before, self._ignores = self._ignores, True
        try:
            yield
        finally:
            self._ignores = before

    def remark(self, text: str) -> None:
        """A line that is not hashed: it may hold what differs between runs, such as a memory address."""
        if not self._ignores:
            self._tell(f"{self.now:.6f} {text}")

    def _tell(self, line: str) -> None:
        self.recent.append(line)
        if self._on_line is not None:
            self._on_line(line)

    def fail(self, message: str) -> None:
        """A promise was broken: remember the first, and stop."""
        if self._ignores:
            return
        self.note("BREACH", message)
        if self.breach is None:
            self.breach = Breach(message)

    @property
    def trace_hash(self) -> str:
        return self._hash.hexdigest()
