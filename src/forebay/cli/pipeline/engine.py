"""Where Spark runs, and how it is started without saying more than people want to read."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.client import CommandError, pairs_option
from forebay.cli.pipeline.checks import CONNECT, check_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL = "pipelines need Spark: pip install 'forebay[spark]'"
SHUFFLE_PARTITIONS = 8
"""Spark's 200 would be 200 tasks for every aggregate; --conf spark.sql.shuffle.partitions says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """Where Spark runs, and its settings."""

    master: str
    conf: Mapping[str, str]
    verbose: bool = False
    metrics: str | None = None
    """Where Prometheus may ask: a port, or host and port."""

    def check(self) -> None:
        """Raises an error if Spark, Java or a master is missing."""
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
            _silence_pyspark()
        ours: dict[str, Any] = {
            "spark.sql.shuffle.partitions": SHUFFLE_PARTITIONS,
            "spark.log.level": "WARN" if self.verbose else "OFF",
            **shipping.settings(self.master),
        }
        if self.master.startswith("local"):
            ours[DRIVER_OPTIONS] = _kept_classes()
        with _quiet(keep_stderr=self.verbose):
            return session("forebay pipeline", self.master, quick=quick, **{**ours, **self.conf})


def _silence_pyspark() -> None:
    """Its log on the driver becomes one line of ours where it matters."""
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    # A JVM that was stopped together with the command leaves PySpark's own server without a reader.
    for server in (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer):
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
    warnings.filterwarnings("ignore", "Unable to cleanly shutdown Spark JVM process", RuntimeWarning)
    # It tells at length of every call that Ctrl-C has cut short, by the root logger too.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addHandler(logging.NullHandler())
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _kept_classes() -> str:
    import pyspark

    from forebay.spark import class_archive
    from forebay.spark.session import find_java

    return class_archive.options(*find_java(), Path(pyspark.__file__).parent)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _quiet(*, keep_stderr: bool) -> Iterator[None]:
    """A process that is started meanwhile has no stdout, and a stderr only if it is asked for.

    What a JVM has to say is not for users. It also lives on for a while after the command, and whoever reads
    the command's output to its end, as `$(forebay pipeline ...)` does, would wait for the JVM.
    """
    kept = {number: os.dup(number) for number in ((1,) if keep_stderr else (1, 2)) if _is_open(number)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for number in kept:
            os.dup2(nowhere, number)
        yield
    finally:
        for number, own in kept.items():
            os.dup2(own, number)
            os.close(own)
        os.close(nowhere)


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
    @click.option("--metrics", metavar="[HOST:]PORT", help="Serve lag and counts of each step to Prometheus.")
    @functools.wraps(command)
    def with_engine(
        *arguments: Any,
        master: str,
        conf: list[tuple[str, str]],
        verbose: bool,
        metrics: str | None,
        **options: Any,
    ) -> Any:
        engine = Engine(master=master, conf=dict(conf), verbose=verbose, metrics=metrics)
        return command(*arguments, engine=engine, **options)

    return with_engine
