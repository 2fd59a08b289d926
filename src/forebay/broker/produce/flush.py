"""Group commit: one fdatasync for all the acknowledgements that wait for a log.

While syncs run, further waiters gather; they share the next ones. So the more producers wait, the fewer syncs
each of them costs. A few logs are synced by one thread. Many logs are shared out among several threads,
because file systems put syncs that come at the same time into one commit: sixteen threads sync thousands of
logs ten times as fast as one.

Logs that nobody waits for are synced too, but never in the way of those that somebody waits for: the two
kinds take turns, and a turn of the first kind ends after a log when there are waiters. A large log that
nobody waits for holds up an acknowledgement at most once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Protocol, TypeAlias, TypeVar

from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import StorageError

log = logging.getLogger(__name__)

SYNC_THREADS = 16
_LOGS_PER_THREAD = 8
"""A thread gets at least this many logs before another one helps."""


T = TypeVar("T")


class Syncable(Protocol):
    def datasync(self) -> object:
        """Blocks until everything written so far is durable; raises StorageError."""


_Waiters: TypeAlias = list[Callable[[StorageError | None], None]]
_Outcome: TypeAlias = tuple[Syncable, StorageError | None, _Waiters]


class GroupCommit:
    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics, pool: Executor) -> None:
        self.loop = loop
        self._metrics = metrics
        self._pool = pool
        self.failed: Signal[Syncable] = Signal()
        """A log could not be synced. Sent after the callbacks that waited for it."""
        self._waiting: dict[Syncable, _Waiters] = {}
        self._unhurried: dict[Syncable, None] = {}
        """Logs that nobody waits for."""
        self._is_turn_of_unhurried = False
        self._running = 0
        """The number of threads that sync."""
        self._closed = False

    def wait(self, log_: Syncable, done: Callable[[StorageError | None], None]) -> None:
        """Call `done` once everything written to the log before now is durable, or could not be made so."""
        self._waiting.setdefault(log_, []).append(done)
        self._unhurried.pop(log_, None)
        self._start()

    def sync_soon(self, logs: Iterable[Syncable]) -> None:
        """Make logs durable soon; no request waits for it."""
        self._add_unhurried(logs)
        self._start()

    def _add_unhurried(self, logs: Iterable[Syncable]) -> None:
        self._unhurried |= {log_: None for log_ in logs if log_ not in self._waiting}

    def _start(self) -> None:
        if self._running or self._closed or not (self._waiting or self._unhurried):
            return
        if self._waiting and not (self._is_turn_of_unhurried and self._unhurried):
            waiting, self._waiting = self._waiting, {}
            self._is_turn_of_unhurried = True
            self._share_out(self._sync, list(waiting.items()))
        else:
            unhurried, self._unhurried = self._unhurried, {}
            self._is_turn_of_unhurried = False
            self._share_out(self._sync_unhurried, list(unhurried))

    def _share_out(self, sync: Callable[[list[T]], None], items: list[T]) -> None:
        parts = min(-(-len(items) // _LOGS_PER_THREAD), SYNC_THREADS)
        self._running = parts
        for number in range(parts):
            self._pool.submit(sync, items[number::parts])

    def _sync(self, waiting: list[tuple[Syncable, _Waiters]]) -> None:
        """Runs in a thread."""
        outcomes = [(log_, _datasync(log_), waiters) for log_, waiters in waiting]
        self.loop.call_soon_threadsafe(self._finished, outcomes, [])

    def _sync_unhurried(self, logs: list[Syncable]) -> None:
        """Runs in a thread."""
        outcomes: list[_Outcome] = []
        for log_ in logs:
            outcomes.append((log_, _datasync(log_), []))
            if self._waiting:
                break
        self.loop.call_soon_threadsafe(self._finished, outcomes, logs[len(outcomes) :])

    def _finished(self, outcomes: list[_Outcome], left: list[Syncable]) -> None:
        self._running -= 1
        self._metrics.log_flushes += len(outcomes)
        self._add_unhurried(left)
        self._start()  # the next sync runs while these acknowledgements are sent
        for log_, error, waiters in outcomes:
            for done in waiters:
                done(error)
            if error is not None:
                self.failed.send(log_)

    def close(self) -> None:
        """Let the syncs that run end, and begin no other: what still waits is not acknowledged."""
        self._closed = True
        self._pool.shutdown(wait=True)


def _datasync(log_: Syncable) -> StorageError | None:
    """Sync a log; the error if that failed."""
    try:
        log_.datasync()
    except StorageError as error:
        return error
    except Exception as error:
        log.exception("a log could not be synced")
        return StorageError(f"a log could not be synced: {error}")
    return None
