"""Runs the steps of a file and watches all of them until the last has ended.

A step that ends by itself is waited for before the next one begins. A step that runs on stays while the later
ones work; when no other is left, all that run are waited for until Ctrl-C or SIGTERM, which is their ordinary
end. Either during a step that would have ended by itself stops that too, and is a failure.

All steps that are under way are looked at every second, whichever is waited for. One that has failed is
started again if the file says so, from its checkpoint, after a pause. Failures count in a row: a batch that
was finished in between begins the count anew. A step that has failed for good ends the others too.

A step that works without a query (a compaction, statistics) runs in a thread of its own while others are
under way, so that these are watched meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forebay.cli.pipeline.board import Board, progress_text
from forebay.cli.pipeline.metrics_page import Watched
from forebay.cli.pipeline.step import Step
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Job, Progress, Summary

POLL_SECONDS = 1.0
_SIZES = ("rows", "rows written", "batches", "seconds", "files", "bytes")
_COUNTS = (*_SIZES, "misfits", "dead letters", "unreadable", "lost")
"""Counts in summaries: those of a step that was started again are added."""


class StepFailed(ForebayError):
    """A step has failed for good."""

    def __init__(self, message: str, error: BaseException) -> None:
        super().__init__(message)
        self.error = error


@dataclass(slots=True)
class _Under:
    """A step under way."""

    step: Step
    job: Job | None = None
    """None while it is started, and while it waits to be started again."""
    work: _Work | None = None
    """The work that starts it, and for a step without a query all that it does."""
    start_at_s: float = 0.0
    failures: int = 0
    """In a row."""
    restarts: int = 0
    ends: bool = True
    before: list[Summary] = field(default_factory=list)
    """Of the times that it was started before."""

    def progressed(self) -> None:
        self.failures = 0

    def total(self, last: Summary) -> Summary:
        """The summary of the step, however often it was started."""
        from forebay.spark.pipelines import Summary

        if not self.restarts:
            return last
        facts: Mapping[str, Any] = last.facts
        for earlier in self.before:
            facts = {
                name: round(value + earlier.facts.get(name, 0), 1) if name in _COUNTS else value
                for name, value in facts.items()
            }
        return Summary(title=last.title, facts={**facts, "restarts": self.restarts})


class Supervisor:
    def __init__(
        self,
        spark: SparkSession,
        brokers: Brokers,
        board: Board,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spark = spark
        self._brokers = brokers
        self._board = board
        self._clock = clock
        self._sleep = sleep
        self._under: list[_Under] = []
        self._waited_for: Step | None = None
        """The step under way that ends by itself."""
        self._summaries: list[Summary] = []
        self.ended: list[Job] = []
        """Those that have ended by themselves."""

    def run(self, steps: Sequence[Step]) -> list[Summary]:
        """The summaries of all steps. Raises StepFailed, or KeyboardInterrupt in a step that has an end."""
        try:
            for step in steps:
                self._run_step(step)
            self._watch()
            while self._under:
                self._sleep(POLL_SECONDS)
                self._watch()
        except KeyboardInterrupt:
            if self._waited_for is not None:
                self._abandon(self._waited_for)
                raise
            self._board.tell("stopping")
            self._stop_all()
        except Exception:
            self._stop_all()
            raise
        finally:
            self._board.close()
        return self._summaries

    def watched(self) -> list[Watched]:
        """The steps under way; may be called by another thread."""
        return [Watched(under.step.name, under.job, under.restarts) for under in list(self._under)]

    # -- one step ------------------------------------------------------------------------------------

    def _run_step(self, step: Step) -> None:
        """Begin a step, and wait for it if it ends by itself."""
        self._waited_for = step
        self._board.show(step.name, f"{step.name}: starts")
        under = _Under(step)
        self._under.append(under)
        self._begin(under)
        self._watch()
        while under.ends and under in self._under:
            self._await(under)
            self._watch()
        self._waited_for = None

    def _begin(self, under: _Under) -> None:
        """Start a step, for the first time or again: in a thread, if others have to be watched meanwhile."""
        work = _Work(self._spark, lambda: under.step.start(self._spark, self._brokers))
        if len(self._under) > 1:
            under.work = work
            work.start()
        else:
            work.run_here()
            self._take_up(under, work)

    def _take_up(self, under: _Under, work: _Work) -> None:
        """Go on with a step that was started.

        If the first time fails, and not for a reason that may pass, the step is not tried again.
        """
        from forebay.spark.pipelines import Job

        try:
            started = work.result()
        except Exception as error:
            if not under.restarts and not _is_retriable(error):
                raise
            self._failed(under, error)
            return
        if isinstance(started, Job):
            under.job, under.ends = started, started.ends
        else:
            self._end(under, started)

    def _end(self, under: _Under, summary: Summary) -> None:
        self._under.remove(under)
        self._summaries.append(under.total(summary))
        self._board.ended(under.step.name)

    def _failed(self, under: _Under, error: Exception) -> None:
        """Have the step started again later, or fail."""
        under.failures += 1
        name, restart = under.step.name, under.step.restart
        pause_ms = restart.pause_ms(under.failures)
        if pause_ms is None:
            times = f"{under.restarts} restart{'' if under.restarts == 1 else 's'}"
            again = f" (after {times})" if under.restarts else ""
            raise StepFailed(f"{name}: {error}{again}", error) from error
        if under.job is not None:
            with contextlib.suppress(Exception):
                under.job.stop()
            under.before.append(under.job.summary())
        under.job = None
        under.start_at_s = self._clock() + pause_ms / 1000
        told = f"{name}: {error}; starts again in {pause_ms / 1000:g} s ({under.failures} of {restart.times})"
        self._board.tell(told)

    # -- all of them ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look at every step once: report its progress, notice its end, start it again when it is time."""
        for under in list(self._under):
            if under.work is not None:
                if not under.work.is_alive():
                    work, under.work = under.work, None
                    self._take_up(under, work)
            elif under.job is not None:
                self._look_at(under, under.job)
            elif self._clock() >= under.start_at_s:
                under.restarts += 1
                self._board.show(under.step.name, f"{under.step.name}: starts again")
                self._begin(under)

    def _look_at(self, under: _Under, job: Job) -> None:
        from forebay.spark.pipelines import PipelineError

        def report(progress: Progress) -> None:
            under.progressed()
            self._board.show(under.step.name, f"{job.title}: {progress_text(progress)}")

        try:
            if job.advance(report):
                return
            summary = job.wait(forget=False)
        except PipelineError as error:
            self._failed(under, error)
            return
        if under.ends:
            self.ended.append(job)
        self._end(under, summary)

    def _await(self, under: _Under) -> None:
        """Until the next look, which comes sooner if this step ends meanwhile."""
        if under.work is not None:
            under.work.join(POLL_SECONDS)
        elif under.job is not None:
            under.job.await_end(POLL_SECONDS)
        else:
            self._sleep(POLL_SECONDS)

    # -- the end -------------------------------------------------------------------------------------

    def _abandon(self, step: Step) -> None:
        """Stop the query. Committed rows stay, and so does the checkpoint."""
        self._board.tell(f"{step.name}: stopped before its end; the same command goes on from here")
        for under in self._under:
            with contextlib.suppress(Exception):  # Spark was interrupted too, and may say so
                if under.job is not None:
                    under.job.stop()

    def _stop_all(self) -> None:
        """Every query that is under way. The JVM may have been stopped with us, and say so."""
        for under in self._under:
            if under.job is None:
                continue
            with contextlib.suppress(Exception):
                under.job.stop()
            self._summaries.append(under.total(under.job.summary()))


class _Work(threading.Thread):
    """Work that takes its time, beside the thread that watches. It ends with the process, finished or not."""

    def __init__(self, spark: SparkSession, work: Callable[[], Job | Summary]) -> None:
        super().__init__(name="forebay-step", daemon=True)
        self._spark = spark
        self._work = work
        self._result: Job | Summary | Exception | None = None

    def run(self) -> None:
        from forebay.spark.threads import use_session

        try:
            use_session(self._spark)
        except Exception as error:
            self._result = error
        else:
            self.run_here()

    def run_here(self) -> None:
        """In the thread that calls it, where Ctrl-C interrupts it."""
        try:
            self._result = self._work()
        except Exception as error:
            self._result = error

    def result(self) -> Job | Summary:
        assert self._result is not None, "it has ended"
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def _is_retriable(error: Exception) -> bool:
    code = getattr(error, "code", None)
    return bool(getattr(code, "retriable", False))
