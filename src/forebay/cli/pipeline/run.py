"""Runs the steps of pipelines: one Spark session for all, progress while they work, a summary of each.

A step that ends by itself is waited for before the next one begins. A step that runs on stays while the
later ones work; when no other is left, all that run are waited for until Ctrl-C, which is their ordinary end.
Ctrl-C during a step that would have ended by itself stops that too, and is a failure: the status is 130.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.client import Client, CommandError, pairs_option
from forebay.cli.output import print_json
from forebay.cli.pipeline.checks import CONNECT, check_archive, check_master
from forebay.lazy import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Job, Progress, Summary

INSTALL = "pipelines need Spark: pip install 'forebay[spark]'"
SHUFFLE_PARTITIONS = 8
"""Spark's 200 would be 200 tasks for every aggregate; --conf spark.sql.shuffle.partitions says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where Spark runs, and its settings."""

    master: str
    conf: Mapping[str, str]
    verbose: bool = False

    def check(self) -> None:
        """Whether there are Spark, Java and a master."""
        # PySpark warns of newer versions of pandas, which these commands use nothing of.
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        try:
            importlib.import_module("forebay.spark.pipelines")
            from forebay.spark.session import find_java
        except ImportError as error:
            raise CommandError(f"{INSTALL} ({error})") from None
        check_master(self.master)
        if not self.master.startswith(CONNECT):
            find_java()

    def session(self, *, quick: bool = False) -> SparkSession:
        """`quick`: a JVM for a short run, which starts sooner and compiles less."""
        from forebay.spark.pipelines import shipping
        from forebay.spark.session import DRIVER_OPTIONS, session

        if not self.verbose:
            # It tells at length of every call that Ctrl-C has cut short, by the root logger too.
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            logging.getLogger().addHandler(logging.NullHandler())
        ours: dict[str, Any] = {
            "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
            "spark.log.level": "WARN" if self.verbose else "OFF",
            **shipping.settings(self.master),
        }
        if self.master.startswith("local"):
            ours[DRIVER_OPTIONS] = _kept_classes()
        with contextlib.nullcontext() if self.verbose else _quiet():
            return session("forebay pipeline", self.master, quick=quick, **{**ours, **self.conf})


def _kept_classes() -> str:
    import pyspark

    from forebay.spark import class_archive
    from forebay.spark.session import find_java

    return class_archive.options(*find_java(), Path(pyspark.__file__).parent)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Whatever is started meanwhile has no stderr: what a JVM has to say at its start is not for users."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    start: Callable[[SparkSession, Brokers], Job | Summary]
    check: Callable[[Brokers], None] = lambda _brokers: None
    """Raises an error for what is wrong before Spark is started."""
    reads: str | None = None
    """An archive that must be there, or that an earlier step makes."""
    makes: str | None = None
    """An archive."""
    is_short: Callable[[Brokers], bool] = lambda _brokers: False
    """Whether the JVM has so little to do that its start is most of it; asked when all checks have passed."""


@dataclass(slots=True)
class Collected:
    """Given as a click object, it takes the steps of commands instead of running them."""

    steps: list[Step] = field(default_factory=list)


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options about Spark; the command gets them as `engine`."""

    @click.option(
        "--master",
        metavar="URL",
        default="local[*]",
        show_default=True,
        help="Where Spark runs: spark://HOST:7077, yarn.",
    )
    @pairs_option(
        "--conf",
        metavar="KEY=VALUE",
        help="A setting of Spark, such as spark.executor.memory=4g; may be repeated.",
    )
    @click.option("--verbose", is_flag=True, help="Also what Spark itself has to say.")
    @functools.wraps(command)
    def with_engine(
        *arguments: Any, master: str, conf: list[tuple[str, str]], verbose: bool, **options: Any
    ) -> Any:
        engine = Engine(master=master, conf=dict(conf), verbose=verbose)
        return command(*arguments, engine=engine, **options)

    return with_engine


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
    spark = engine.session(quick=all(step.is_short(brokers) for step in steps))
    from pyspark.errors import PySparkException

    from forebay.spark.pipelines.jobs import explain

    run = _Run(spark, brokers)
    try:
        summaries = run.run(steps)
    except PySparkException as error:
        raise CommandError(f"Spark refused: {explain(error)}") from error
    finally:
        spark.stop()
    print_summaries(summaries, as_json)
    for job in run.ended:
        job.forget()


def _check(steps: Sequence[Step], brokers: Brokers) -> None:
    from forebay.spark.pipelines.lake import absolute

    made: set[str] = set()
    for step in steps:
        step.check(brokers)
        if step.reads is not None and absolute(step.reads) not in made:
            check_archive(step.reads)
        if step.makes is not None:
            made.add(absolute(step.makes))


def _brokers(client: Client | None) -> Brokers:
    from forebay.spark.pipelines import Brokers

    if client is None:
        return Brokers(bootstrap="")
    client.knock()
    return Brokers(
        bootstrap=client.bootstrap,
        options={f"kafka.{name}": value for name, value in client.properties.items()},
    )


class _Run:
    def __init__(self, spark: SparkSession, brokers: Brokers) -> None:
        self._spark = spark
        self._brokers = brokers
        self._running: list[Job] = []
        self.ended: list[Job] = []
        """Those that have ended by themselves."""
        self._unfinished: str | None = None
        """The step under way that ends by itself."""

    def run(self, steps: Sequence[Step]) -> list[Summary]:
        summaries: list[Summary] = []
        try:
            for step in steps:
                _tell(f"{step.name} ...")
                summaries += self._begin(step)
            summaries += [job.wait(_teller(job)) for job in self._running]
        except KeyboardInterrupt:
            if self._unfinished is not None:
                self._abandon(self._unfinished)
                raise
            _tell("stopping")
            summaries += [self._stopped(job) for job in self._running]
        return summaries

    def _begin(self, step: Step) -> list[Summary]:
        """Its summary, unless it runs on."""
        from forebay.spark.pipelines import Job

        self._unfinished = step.name
        started = step.start(self._spark, self._brokers)
        if isinstance(started, Job):
            self._running.append(started)
            if started.ends:
                summary = started.wait(_teller(started), forget=False)
                self._running.remove(started)
                self.ended.append(started)
            else:
                summary = None
        else:
            summary = started
        self._unfinished = None
        return [] if summary is None else [summary]

    def _abandon(self, step: str) -> None:
        """What is committed stays, and so does the checkpoint."""
        _tell(f"{step}: stopped before its end; the same command goes on from here")
        if sys.stderr.isatty():
            click.echo(err=True)
        for job in self._running:
            with contextlib.suppress(Exception):  # Spark was interrupted too, and may say so
                job.stop()

    def _stopped(self, job: Job) -> Summary:
        job.stop()
        return job.summary()


def _teller(job: Job) -> Callable[[Progress], None]:
    def tell(progress: Progress) -> None:
        backlog = "" if progress.backlog is None else f", {progress.backlog:,} to go"
        written = "" if progress.rows_out is None else f", {progress.rows_out:,} written"
        rows = f"{progress.rows:,} rows{written}, {progress.rows_per_s:,.0f}/s"
        _tell(f"{job.title}: batch {progress.batch}, {rows}{backlog}")

    return tell


def _tell(line: str) -> None:
    """Progress is for people: a line that overwrites the last at a terminal, all lines in a file."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[2K{line}", nl=False, err=True)
    else:
        click.echo(line, err=True)


def print_summaries(summaries: Sequence[Summary], as_json: bool) -> None:
    if sys.stderr.isatty():
        click.echo("\r\x1b[2K", nl=False, err=True)
    if as_json:
        values = [{"pipeline": summary.title, **_json_names(summary.facts)} for summary in summaries]
        print_json(values[0] if len(values) == 1 else values)
        return
    for summary in summaries:
        click.echo(summary.title)
        width = max(map(len, summary.facts), default=0)
        for name, value in summary.facts.items():
            click.echo(f"  {name.ljust(width)}  {_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _json_names(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace(" ", "_"): value for name, value in facts.items()}
