"""Handles messages by a function, several at a time: each job is a thread and a member of the group.

Each job has its own member, so a slow message delays only its own job.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from forebay.client.errors import ClientError, LockLost
from forebay.client.queues.messages import AcknowledgeType, QueueMessage, Reject, unfinished_outcome
from forebay.client.queues.receiver import Receiver
from forebay.errors import ConfigError
from forebay.lazy import dataclass

log = logging.getLogger("forebay.client")

Handler = Callable[[QueueMessage], object]
Stop = threading.Event

WAIT_SECONDS = 0.5
"""One wait for a message. A stop is noticed between two of them."""
JOBS_MAX = 200
"""The default limit of a broker for one group."""


@dataclass(slots=True, kw_only=True)
class WorkSummary:
    """The outcomes of the handled messages."""

    accepted: int = 0
    rejected: int = 0
    released: int = 0
    lost: int = 0
    """Handled, but not acknowledged in time or at all: these are delivered again."""

    def count(self, outcome: AcknowledgeType) -> None:
        match outcome:
            case AcknowledgeType.ACCEPT:
                self.accepted += 1
            case AcknowledgeType.REJECT:
                self.rejected += 1
            case AcknowledgeType.RELEASE:
                self.released += 1

    @property
    def handled(self) -> int:
        return self.accepted + self.rejected + self.released + self.lost

    def __str__(self) -> str:
        text = f"{self.accepted} accepted, {self.rejected} rejected, {self.released} released"
        return f"{text}, {self.lost} lost" if self.lost else text


class Progress:
    """The progress of all jobs together, and their end."""

    def __init__(self, idle_s: float | None) -> None:
        self.summary = WorkSummary()
        self._idle_s = idle_s
        self._busy = 0
        self._last_s = time.monotonic()

    def begin(self) -> None:
        self._busy += 1

    def end(self) -> None:
        self._busy -= 1
        self._last_s = time.monotonic()

    def is_idle(self) -> bool:
        """A message that is being handled may still be released: as long as there is one, nobody is idle."""
        idle_s = self._idle_s
        return idle_s is not None and not self._busy and time.monotonic() - self._last_s >= idle_s


class Work:
    def __init__(
        self,
        new_receiver: Callable[[], Receiver],
        handle: Handler,
        *,
        jobs: int,
        idle_s: float | None,
        stop: Stop | None,
    ) -> None:
        check_jobs(jobs)
        self._new_receiver = new_receiver
        self._handle = handle
        self._jobs = jobs
        self._stop = Stop() if stop is None else stop
        self._progress = Progress(idle_s)
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def run(self) -> WorkSummary:
        """Run until stopped or idle. The first failure of the client stops all jobs, and is raised."""
        receivers: list[Receiver] = []
        try:
            receivers.extend(self._new_receiver() for _ in range(self._jobs))
            self._run_all(receivers)
        finally:
            _close(receivers)
        if self._failure is not None:
            raise self._failure
        return self._progress.summary

    def _run_all(self, receivers: list[Receiver]) -> None:
        threads = [
            threading.Thread(target=self._job, args=(each,), name=f"forebay-job-{number}", daemon=True)
            for number, each in enumerate(receivers, 1)
        ]
        for thread in threads:
            thread.start()
        try:
            _join(threads)
        except BaseException:  # Ctrl-C: messages being handled are finished; a second Ctrl-C ends that
            self._stop.set()
            _join(threads)
            raise

    def _job(self, receiver: Receiver) -> None:
        try:
            while not self._stop.is_set() and not self._is_idle():
                if (message := receiver.take()) is not None:
                    self._handle_one(receiver, message)
                else:
                    receiver.fill(WAIT_SECONDS)
        except BaseException as error:
            self._failure = self._failure or error
            self._stop.set()

    def _is_idle(self) -> bool:
        with self._lock:
            return self._progress.is_idle()

    def _handle_one(self, receiver: Receiver, message: QueueMessage) -> None:
        with self._lock:
            self._progress.begin()
        try:
            outcome = self._outcome(message)
            is_known = acknowledged(receiver, message, outcome)
        finally:
            with self._lock:
                self._progress.end()
        with self._lock:
            tell(self._progress.summary, outcome if is_known else None)

    def _outcome(self, message: QueueMessage) -> AcknowledgeType:
        try:
            self._handle(message)
        except Exception as error:
            return logged_outcome_of(message, error)
        return message.outcome or AcknowledgeType.ACCEPT


def outcome_of(message: QueueMessage, error: BaseException) -> AcknowledgeType:
    """The outcome of a message whose handling has raised this."""
    if isinstance(error, Reject):
        message.reject(str(error))
    return unfinished_outcome(message)


def logged_outcome_of(message: QueueMessage, error: Exception) -> AcknowledgeType:
    """Like `outcome_of`, for errors that are not raised any further."""
    outcome = outcome_of(message, error)
    if outcome is AcknowledgeType.RELEASE:
        count = message.delivery_count
        log.warning("%s is released, its delivery %d failed", message.place, count, exc_info=error)
    return outcome


def acknowledged(receiver: Receiver, message: QueueMessage, outcome: AcknowledgeType) -> bool:
    """True if the broker has persisted this. Errors that end the whole work are raised."""
    try:
        receiver.acknowledge(message, outcome)
    except LockLost as lost:
        log.warning("%s", lost)
        return False
    except ClientError as error:
        if error.fatal:
            raise
        log.warning("%s", error)
        return False
    return True


def tell(summary: WorkSummary, outcome: AcknowledgeType | None) -> None:
    if outcome is None:
        summary.lost += 1
    else:
        summary.count(outcome)


def check_jobs(jobs: int) -> None:
    if not 1 <= jobs <= JOBS_MAX:
        raise ConfigError(f"jobs={jobs}: write a number from 1 to {JOBS_MAX}")


def _close(receivers: list[Receiver]) -> None:
    """Close all at the same time: many that hang take no longer than one. The first failure is raised."""
    for receiver in receivers:
        receiver.start_close()
    with contextlib.ExitStack() as closing:
        for receiver in reversed(receivers):
            closing.callback(receiver.close)


def _join(threads: list[threading.Thread]) -> None:
    """Join in short waits; otherwise signals would be noticed only when a thread ends."""
    for thread in threads:
        while thread.is_alive():
            thread.join(0.2)
