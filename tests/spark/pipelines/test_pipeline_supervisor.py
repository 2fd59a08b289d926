"""How steps are watched: all of them at all times, whichever is waited for, and started again if asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from forebay.cli.client import CommandError
from forebay.cli.pipeline.board import Board
from forebay.cli.pipeline.commands import pipeline
from forebay.cli.pipeline.exit_codes import Terminated
from forebay.cli.pipeline.restarts import NO_RESTART, Restart, restart_of
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.steps_file import load, steps_of
from forebay.cli.pipeline.supervisor import StepFailed, Supervisor
from forebay.errors import ErrorCode, KafkaError
from forebay.spark.pipelines import Brokers, Job, PipelineError, Summary

SPARK: Any = SimpleNamespace()
"""A session like one of Spark Connect: threads need nothing of it."""
BROKERS = Brokers(bootstrap="")


class Query:
    """A streaming query as Spark shows it; `story` is what each look at it finds."""

    def __init__(self, *story: str) -> None:
        self._story = list(story)
        self._now = "idle"
        self.batches: list[dict[str, Any]] = []
        self.stopped = 0

    @property
    def isActive(self) -> bool:
        after = "idle" if self._now == "batch" else self._now
        self._now = self._story.pop(0) if self._story else after
        if self._now == "batch":
            self.batches.append(
                {
                    "batchId": len(self.batches),
                    "numInputRows": 5,
                    "processedRowsPerSecond": 1.0,
                    "sources": [],
                }
            )
        if self._now == "ctrl-c":
            raise KeyboardInterrupt
        if self._now == "sigterm":
            raise Terminated
        return self._now not in ("failed", "ended") and not self.stopped

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        return self.batches

    lastProgress = None

    def exception(self) -> Exception | None:
        return ValueError("boom") if self._now == "failed" else None

    def awaitTermination(self, _seconds: int) -> None:
        pass

    def stop(self) -> None:
        self.stopped += 1


class Clock:
    """Passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.slept.append(seconds)


def supervisor(clock: Clock | None = None) -> Supervisor:
    clock = clock or Clock()
    return Supervisor(SPARK, BROKERS, Board(), clock=clock, sleep=clock.sleep)


def step(name: str, *queries: Query, ends: bool = False, restart: Restart = NO_RESTART) -> Step:
    """Started for the first time it runs the first query, then the second, and so on."""
    left: list[Any] = list(queries)
    return Step(name=name, start=lambda *_: Job(name, left.pop(0), ends=ends), restart=restart)


def test_a_later_endless_step_that_fails_ends_the_run() -> None:
    """The first one never ends: waiting for one after the other would wait for ever."""
    first, second = Query(), Query("idle", "batch", "failed")
    with pytest.raises(StepFailed, match="second: second failed: boom"):
        supervisor().run([step("first", first), step("second", second)])
    assert first.stopped == 1


def test_an_endless_step_that_fails_while_a_finite_one_works_is_noticed() -> None:
    endless, finite = Query("idle", "idle", "failed"), Query()
    with pytest.raises(StepFailed, match="endless failed: boom"):
        supervisor().run([step("endless", endless), step("finite", finite, ends=True)])
    assert finite.stopped == 1


def test_an_endless_step_that_fails_while_a_compaction_works_is_noticed() -> None:
    """Steps without a query are calls that return when they are done: this one does so when it is noticed."""
    noticed = threading.Event()

    class Noticing(Query):
        def exception(self) -> Exception | None:
            error = super().exception()
            if error is not None:
                noticed.set()
            return error

    def compact(*_: object) -> Summary:
        assert noticed.wait(60)
        return Summary(title="compact", facts={})

    endless = Noticing("idle", "failed")
    with pytest.raises(StepFailed, match="endless failed: boom"):
        supervisor().run([step("endless", endless), Step(name="compact", start=compact)])


def test_a_step_that_failed_is_started_again_after_a_pause_that_grows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    restart = Restart(times=2, backoff_ms=4000)
    queries = [Query("batch", "failed"), Query("failed"), Query("batch", "ended")]
    (summary,) = supervisor(clock).run([step("flaky", *queries, ends=True, restart=restart)])
    told = [line for line in capsys.readouterr().err.splitlines() if "again in" in line]
    assert told == [
        "flaky: flaky failed: boom; starts again in 4 s (1 of 2)",
        "flaky: flaky failed: boom; starts again in 8 s (2 of 2)",
    ]
    assert sum(clock.slept) == 12
    assert (summary.facts["rows"], summary.facts["batches"], summary.facts["restarts"]) == (10, 2, 2)


def test_failures_count_in_a_row() -> None:
    """A batch in between begins the count anew; without one the step fails for good."""
    restart = Restart(times=1, backoff_ms=1000)
    queries = [*(Query("batch", "failed") for _ in range(4)), Query("failed")]
    with pytest.raises(StepFailed, match=r"boom \(after 4 restarts\)"):
        supervisor().run([step("flaky", *queries, restart=restart)])


def test_steps_that_fail_together_are_each_started_again_once() -> None:
    """As when the brokers are away: one is started while it is time for the other, too."""
    both_are_started = threading.Barrier(2)
    starts: list[str] = []

    def flaky(name: str) -> Step:
        queries: list[Any] = [Query("idle", "idle", "failed"), Query("batch", "ended")]

        def start(*_: object) -> Job:
            starts.append(name)
            if starts.count(name) > 1:
                both_are_started.wait(60)
            return Job(name, queries.pop(0), ends=False)

        return Step(name=name, start=start, restart=Restart(times=1, backoff_ms=1000))

    summaries = supervisor().run([flaky("one"), flaky("two")])
    assert sorted(starts) == ["one", "one", "two", "two"]
    assert [summary.facts["restarts"] for summary in summaries] == [1, 1]


def test_a_failed_job_is_stopped_before_it_is_started_again() -> None:
    failed: Any = Query("failed")
    ended: Any = Query("ended")
    jobs = [Job("main", failed, ends=True), Job("main", ended, ends=True)]
    again = Step(name="main", start=lambda *_: jobs.pop(0), restart=Restart(times=1, backoff_ms=1))
    supervisor().run([again])
    assert failed.stopped == 1


@pytest.mark.parametrize(
    ("error", "starts"),
    [
        (PipelineError("no such column"), 1),
        (KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right"), 1),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION, "nobody answers"), 2),
    ],
)
def test_a_first_start_is_repeated_only_if_its_reason_may_pass(error: Exception, starts: int) -> None:
    tried = []

    def start(*_: object) -> Job:
        tried.append(1)
        raise error

    with pytest.raises((PipelineError, KafkaError, StepFailed)):
        supervisor().run([Step(name="wrong", start=start, restart=Restart(times=1, backoff_ms=1))])
    assert len(tried) == starts


@pytest.mark.parametrize("signal", ["ctrl-c", "sigterm"])
def test_endless_steps_end_well_by_a_signal_and_finite_ones_do_not(signal: str) -> None:
    first, second = Query("batch"), Query("idle", "idle", signal)
    summaries = supervisor().run([step("first", first), step("second", second)])
    assert [summary.facts["rows"] for summary in summaries] == [5, 0]
    assert (first.stopped, second.stopped) == (1, 1)
    with pytest.raises(KeyboardInterrupt) as raised:
        supervisor().run([step("endless", Query()), step("finite", Query("idle", signal), ends=True)])
    assert isinstance(raised.value, Terminated) == (signal == "sigterm")


def test_the_progress_of_every_step_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StepFailed):
        supervisor().run(
            [step("one", Query("batch")), step("two", Query("batch", "batch", "idle", "failed"))]
        )
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if "batch" in line] == [
        "one: batch 0, 5 rows, 1/s",
        "two: batch 0, 5 rows, 1/s",
        "two: batch 1, 5 rows, 1/s",
    ]


def test_at_a_terminal_each_step_has_a_line_that_changes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    board = Board()
    board.show("one", "one: batch 0")
    board.show("two", "two: a line that is longer than the terminal")
    board.show("one", "one: batch 1")
    board.tell("two: it failed")
    board.ended("one")
    board.close()
    up = "\x1b[A\r\x1b[2K"
    assert capsys.readouterr().err == "".join(
        [
            *("one: batch 0\n", up),
            *("one: batch 0\n", "two: a line that is\n", up * 2),
            *("one: batch 1\n", "two: a line that is\n", up * 2),
            *("two: it failed\n", "one: batch 1\n", "two: a line that is\n", up * 2),
            *("two: a line that is\n", up),
        ]
    )


# -- the file ----------------------------------------------------------------------------------------------


def restarts_in(tmp_path: Path, content: str) -> list[Restart]:
    file = tmp_path / "steps.yml"
    file.write_text(content)
    return [found.restart for found in steps_of(pipeline, load(file), click.Context(pipeline))]


def test_a_file_says_which_steps_are_started_again(tmp_path: Path) -> None:
    found = restarts_in(
        tmp_path,
        """
        restart: on-failure
        steps:
          - archive: {topic: a, to: x}
          - archive: {topic: b, to: y}
            restart: {times: 2, backoff: 1m}
          - compact: {archive: x}
            restart: never
        """,
    )
    assert found == [
        Restart(times=5, backoff_ms=10_000),
        Restart(times=2, backoff_ms=60_000),
        NO_RESTART,
    ]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("always", "'always' is neither never nor on-failure"),
        ({"when": "sometimes"}, "'sometimes' is neither never nor on-failure"),
        (5, "5 is neither never nor on-failure"),
        ({"times": 0}, "times is 0: give a number of 1 or more"),
        ({"times": True}, "times is True"),
        ({"backoff": "soon"}, "backoff: 'soon' is no time"),
        ({"color": 1}, "restart has no 'color': choose when, times, backoff"),
    ],
)
def test_what_cannot_be_a_restart_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(CommandError, match=problem):
        restart_of(value)


def test_steps_that_do_the_same_have_names_of_their_own(tmp_path: Path) -> None:
    """Their progress and their metrics are told apart by it."""
    file = tmp_path / "steps.yml"
    file.write_text("steps: [{compact: {archive: x}}, {compact: {archive: y}}, {compact: {archive: x}}]")
    steps = steps_of(pipeline, load(file), click.Context(pipeline))
    assert [found.name for found in steps] == ["compact x", "compact y", "compact x (step 3)"]


def test_a_wrong_restart_names_its_step(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"steps.yml: step 1: restart: 'x' is neither"):
        restarts_in(tmp_path, "steps: [{compact: {archive: x}, restart: x}]")


def pauses(restart: Restart) -> list[int | None]:
    ask: Callable[[int], int | None] = restart.pause_ms
    return [ask(failures) for failures in range(1, 9)]


def test_the_pause_doubles_up_to_five_minutes() -> None:
    assert pauses(Restart(times=7, backoff_ms=10_000)) == [
        *(10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000),
        None,
    ]
    assert pauses(Restart(times=1, backoff_ms=600_000))[:2] == [600_000, None]
