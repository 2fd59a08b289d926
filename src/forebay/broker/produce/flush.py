"""Group commit: one thread, and one fdatasync for all the acknowledgements that wait for it.

While a sync runs, further waiters gather; they share the next one. So the more producers wait, the fewer
syncs each of them costs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Protocol

from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import StorageError

log = logging.getLogger(__name__)


class Syncable(Protocol):
    def datasync(self) -> object:
        """Blocks until everything written so far is durable; raises StorageError."""


_Outcome = tuple[Syncable, StorageError | None, list[Callable[[StorageError | None], None]]]


class GroupCommit:
    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics, pool: Executor) -> None:
        self.loop = loop
        self._metrics = metrics
        self._pool = pool
        self.failed: Signal[Syncable] = Signal()
        """A log could not be synced. Sent after the callbacks that waited for it."""
        self._waiting: dict[Syncable, list[Callable[[StorageError | None], None]]] = {}
        self._running = False
        self._closed = False

    def wait(self, log_: Syncable, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` once everything written to the log before now is durable, or could not be made so."""
        self._waiting.setdefault(log_, []).append(done)
        self._start()

    def sync_soon(self, logs: Iterable[Syncable]) -> None:
        """Make logs durable soon; no request waits for it."""
        for log_ in logs:
            self._waiting.setdefault(log_, [])
        self._start()

    def _start(self) -> None:
        if self._running or self._closed or not self._waiting:
            return
        self._running = True
        waiting, self._waiting = self._waiting, {}
        self._pool.submit(self._sync, waiting)

    def _sync(self, waiting: dict[Syncable, list[Callable[[StorageError | None], None]]]) -> None:
        """Runs in the thread."""
        outcomes: list[_Outcome] = []
        for log_, callbacks in waiting.items():
            try:
                log_.datasync()
                outcomes.append((log_, None, callbacks))
            except StorageError as error:
                outcomes.append((log_, error, callbacks))
            except Exception as error:
                log.exception("a log could not be synced")
                outcomes.append((log_, StorageError(f"a log could not be synced: {error}"), callbacks))
        self.loop.call_soon_threadsafe(self._finished, outcomes)

    def _finished(self, outcomes: list[_Outcome]) -> None:
        self._running = False
        self._metrics.log_flushes += len(outcomes)
        self._start()  # the next sync runs while these acknowledgements are sent
        for log_, error, callbacks in outcomes:
            for done in callbacks:
                done(error)
            if error is not None:
                self.failed.send(log_)

    def close(self) -> None:
        """Let the sync that runs end, and begin no other: what still waits is not acknowledged."""
        self._closed = True
        self._pool.shutdown(wait=True)
