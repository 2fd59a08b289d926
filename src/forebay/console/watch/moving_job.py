"""Moves of partitions that a person has begun in the console: carried out behind, one run at a time.

A move that was begun belongs to the cluster and goes on without the console. What was not begun yet when the
console ends is left out; to begin it again moves the rest.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from forebay.core.cluster.replicas.balancing import Move
from forebay.errors import ForebayError
from forebay.operations.client import Client, CommandError
from forebay.operations.cluster.reassignments import carry_out
from forebay.operations.wire import WireConnection

log = logging.getLogger(__name__)

_AT_ONCE = 20
_SECONDS_MAX = 24 * 3600.0

Afterwards = Callable[[WireConnection], Sequence[str]]
"""Called when the moves have ended; returns what did not work, in words."""


class MovingJob:
    """Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._title = ""
        self._total = self._done = 0
        self._running = False
        self._problems: list[str] = []

    def begin(self, title: str, moves: Sequence[Move], afterwards: Afterwards | None = None) -> None:
        """Raises CommandError while others are carried out."""
        with self._lock:
            if self._running:
                raise CommandError(f"wait for the moves under way: {self._title}")
            self._running = True
            self._title, self._total, self._done, self._problems = title, len(moves), 0, []
        thread = threading.Thread(target=self._run, args=(moves, afterwards), name="moves", daemon=True)
        thread.start()

    def progress(self) -> dict[str, Any] | None:
        """The run under way, or the last one; None if there was none."""
        with self._lock:
            if not self._title:
                return None
            return {
                "title": self._title,
                "total": self._total,
                "done": self._done,
                "running": self._running,
                "problems": list(self._problems),
            }

    def _run(self, moves: Sequence[Move], afterwards: Afterwards | None) -> None:
        problems: list[str] = []
        try:
            with WireConnection.open(self._client) as connection:
                if moves:
                    problems += carry_out(
                        connection, moves, at_once=_AT_ONCE, seconds_max=_SECONDS_MAX, show=self._show
                    )
                if afterwards is not None:
                    problems += afterwards(connection)
        except ForebayError as error:
            problems.append(str(error))
        except Exception:
            log.exception("moving partitions failed")
            problems.append("the console has failed: its log says why")
        with self._lock:
            self._problems = problems
            self._running = False

    def _show(self, done: int) -> None:
        with self._lock:
            self._done = done
