"""Runs the steps of pipelines: checks before Spark is started, one Spark session for all, a summary of each.

How the steps are watched while they work is in `supervisor.py`.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.client import Client, CommandError
from forebay.cli.pipeline.board import Board, print_summaries
from forebay.cli.pipeline.checks import check_archive
from forebay.cli.pipeline.engine import Engine
from forebay.cli.pipeline.exit_codes import DATA, FAILED, TRY_AGAIN, Terminated
from forebay.cli.pipeline.metrics_page import MetricsServer, bound, page
from forebay.cli.pipeline.plan_view import show_plan
from forebay.cli.pipeline.step import Collected, Step
from forebay.cli.pipeline.supervisor import StepFailed, Supervisor
from forebay.errors import ConfigError, ForebayError

if TYPE_CHECKING:
    from forebay.spark.pipelines import Brokers, Job, Summary


def run_or_collect(step: Step, engine: Engine, client: Client | None, as_json: bool) -> None:
    collected = click.get_current_context().find_object(Collected)
    if collected is not None:
        collected.steps.append(step)
        return
    run_steps([step], engine, client, as_json)


def run_steps(steps: Sequence[Step], engine: Engine, client: Client | None, as_json: bool) -> None:
    """All steps, to their ends or to Ctrl-C. Spark is started when all that can be checked is right.

    That a replay has come to its end is forgotten last: a command that is killed before that, while Spark
    stops for example, does not replay everything again when it is run again.
    """
    engine.check()
    brokers = _brokers(client)
    _check(steps, brokers)
    with bound(engine.metrics) as metrics:
        summaries, ended = _supervised(steps, engine, client, brokers, metrics)
    print_summaries(summaries, as_json)
    for job in ended:
        job.forget()


def _supervised(
    steps: Sequence[Step],
    engine: Engine,
    client: Client | None,
    brokers: Brokers,
    metrics: MetricsServer | None,
) -> tuple[list[Summary], list[Job]]:
    """The summaries, and the jobs that came to their end."""
    spark = engine.session(quick=all(step.is_short(brokers) for step in steps))
    supervisor = Supervisor(spark, brokers, Board())
    if metrics is not None:
        metrics.start(lambda: page(supervisor.watched(), brokers, time.time()))
    try:
        with _stopped_by_sigterm():
            return supervisor.run(steps), supervisor.ended
    except Exception as error:
        raise _failure(error, client) from error
    finally:
        with contextlib.suppress(Exception):  # the JVM may have been stopped with us
            spark.stop()


def plan_steps(steps: Sequence[Step], engine: Engine, client: Client, as_json: bool) -> None:
    """Show what steps will do; status 1 if they cannot."""
    problems: list[str] = []

    def tried(work: Callable[[], object], of: str = "") -> None:
        try:
            work()
        except ForebayError as error:
            problems.append(f"{of}{error}")

    tried(engine.check)
    tried(client.knock)
    brokers = _unasked_brokers(client)
    made: set[str] = set()
    if not problems:
        for step in steps:
            tried(partial(_check_step, step, brokers, made), f"{step.name}: ")
    if not show_plan(steps, brokers, problems, as_json):
        raise click.exceptions.Exit(FAILED)


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """Schedulers stop a process by SIGTERM: it ends as by Ctrl-C.

    Some send it twice, to the process and to its group: from the first on the process is about to end.
    """

    def stop(_number: int, _frame: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, before)


def _failure(error: Exception, client: Client | None) -> Exception:
    """One line for what a user or the world can cause; anything else is a bug, and shown as it is."""
    from pyspark.errors import PySparkException

    from forebay.spark.pipelines.jobs import cause_of

    if isinstance(error, ConfigError):
        return error
    cause = error.error if isinstance(error, StepFailed) else error
    exit_code = _exit_code(cause, client)
    if isinstance(error, ForebayError):
        return CommandError(str(error), exit_code=exit_code)
    if isinstance(error, PySparkException):
        return CommandError(f"Spark refused: {cause_of(error).text}", exit_code=exit_code)
    if isinstance(error, OSError):
        return CommandError(f"files cannot be read or written: {error}", exit_code=exit_code)
    return error


def _exit_code(error: BaseException, client: Client | None) -> int:
    """The code from which a scheduler may conclude why a step failed."""
    from forebay.spark.pipelines.jobs import DATA_KINDS, cause_of

    if cause_of(error).kind in DATA_KINDS:
        return DATA
    try:
        if client is not None:
            client.knock()
    except CommandError:
        return TRY_AGAIN
    return FAILED


def _check(steps: Sequence[Step], brokers: Brokers) -> None:
    made: set[str] = set()
    for step in steps:
        _check_step(step, brokers, made)


def _check_step(step: Step, brokers: Brokers, made: set[str]) -> None:
    """`made`: the archives of earlier steps."""
    from forebay.spark.pipelines.lake import absolute

    if step.makes is not None:
        made.add(absolute(step.makes))
    step.check(brokers)
    if step.reads is not None and absolute(step.reads) not in made:
        check_archive(step.reads)


def _brokers(client: Client | None) -> Brokers:
    from forebay.spark.pipelines import Brokers

    if client is None:
        return Brokers(bootstrap="")
    try:
        client.knock()
    except CommandError as error:
        raise CommandError(str(error), exit_code=TRY_AGAIN) from None
    return _unasked_brokers(client)


def _unasked_brokers(client: Client) -> Brokers:
    from forebay.spark.pipelines import Brokers

    return Brokers(
        bootstrap=client.bootstrap,
        options={f"kafka.{name}": value for name, value in client.properties.items()},
    )
