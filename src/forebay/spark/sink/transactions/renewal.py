"""Keeps the transactions of exactly-once writes open for as long as their job lives, and not much longer.

Tasks leave their transactions open until the driver decides about all of them. If the driver dies first,
readers of committed data wait behind them until they time out. So their timeout is short and is renewed
(`id_prefixes.py`). Brokers renew all transactions of a run at once: a running task also renews those of tasks
that have finished.

Each Python worker has a thread for this, since a task may wait for its rows for a long time. It renews from
when a task begins to work for a run until some time after the last one has left (`LINGER_S`). That is for a
job that lives while none of its tasks runs: Spark may take two minutes to notice that a machine has died.
When the driver dies its workers die with it, and nothing is renewed any more.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from forebay.lazy import dataclass
from forebay.spark.sink.options import WriteOptions
from forebay.spark.sink.transactions import id_prefixes
from forebay.spark.wire.connections import Cluster

_log = logging.getLogger(__name__)

LINGER_S = 180.0
RENEWALS_PER_TIMEOUT = 4
"""Three of them may fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a query or a write, as the tasks of this process know it."""

    bootstrap: str
    connection: tuple[tuple[str, str], ...]
    name: str
    run: str
    timeout_ms: int

    @property
    def interval_s(self) -> float:
        return self.timeout_ms / 1000 / RENEWALS_PER_TIMEOUT


def job_of(options: WriteOptions, name: str, run: str) -> Job:
    return Job(
        bootstrap=options.bootstrap,
        connection=tuple(sorted(options.connection.items())),
        name=name,
        run=run,
        timeout_ms=options.transaction_timeout_ms or id_prefixes.RENEWED_TIMEOUT_MS,
    )


@dataclass(slots=True)
class _Kept:
    due_s: float
    """When its transactions are renewed next."""
    tasks: int = 0
    left_s: float = 0.0
    """When the last task has left."""


class Renewals:
    """The jobs that this process works for, and the thread that renews their transactions.

    The thread is there only while there is a job; most tasks are over before it does anything.
    """

    def __init__(self, linger_s: float = LINGER_S) -> None:
        self._linger_s = linger_s
        self._changed = threading.Condition()
        self._jobs: dict[Job, _Kept] = {}
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """The jobs whose transactions are renewed."""
        return len(self._jobs)

    @contextmanager
    def working_for(self, job: Job) -> Iterator[None]:
        self._enter(job)
        try:
            yield
        finally:
            self._leave(job)

    def _enter(self, job: Job) -> None:
        with self._changed:
            if job not in self._jobs:
                self._jobs[job] = _Kept(time.monotonic() + job.interval_s)
                self._changed.notify()
            self._jobs[job].tasks += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="forebay-renewal", daemon=True)
                self._thread.start()

    def _leave(self, job: Job) -> None:
        with self._changed:
            kept = self._jobs.get(job)
            if kept is not None:
                kept.tasks -= 1
                kept.left_s = time.monotonic()

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (job := self._next()) is not None:
                self._renew(job)
        finally:
            Cluster.close_shared()

    def _next(self) -> Job | None:
        """The job whose turn it is, when it is; None when there is none left."""
        with self._changed:
            while self._jobs:
                job, kept = min(self._jobs.items(), key=lambda each: each[1].due_s)
                wait_s = kept.due_s - time.monotonic()
                if wait_s > 0:
                    self._changed.wait(wait_s)
                elif not kept.tasks and time.monotonic() - kept.left_s > self._linger_s:
                    del self._jobs[job]
                else:
                    kept.due_s = time.monotonic() + job.interval_s
                    return job
            self._thread = None
            return None

    def _renew(self, job: Job) -> None:
        try:
            cluster = Cluster.shared(job.bootstrap, dict(job.connection))
            if id_prefixes.can_look_after(cluster, job.name):
                still_open = id_prefixes.renew(cluster, job.name, job.run, limit_s=job.interval_s)
            else:
                still_open = 0
        except Exception as error:  # the next renewal may succeed, and other jobs need the thread
            _log.warning("the transactions of %s could not be renewed, for now: %s", job.name, error)
            return
        with self._changed:
            kept = self._jobs.get(job)
            if kept is not None and not kept.tasks and not still_open:
                del self._jobs[job]  # decided


_own: tuple[int, Renewals] | None = None


def renewals() -> Renewals:
    """Those of this process: a thread does not go on in a process that is forked off."""
    global _own
    if _own is None or _own[0] != os.getpid():
        _own = os.getpid(), Renewals()
    return _own[1]
