"""`forebay pipeline stats`: what is in a topic or an archive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option
from forebay.cli.pipeline.checks import check_report
from forebay.cli.pipeline.engine import Engine, engine_options
from forebay.cli.pipeline.run import run_or_collect
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.step_plans import stats_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Summary


@click.command()
@click.argument("source", metavar="TOPIC_OR_DIR")
@click.option(
    "--archive", "is_archive", is_flag=True, help="SOURCE is an archive. [default: if it has a slash]"
)
@click.option("--report", metavar="FILE", help="Also a picture (.png) or a page (.html).")
@json_option
@engine_options
@client_options
def stats(
    source: str, is_archive: bool, report: str | None, as_json: bool, engine: Engine, client: Client
) -> None:
    """Count messages and bytes by key, minute, partition and size; find gaps and duplicates.

    \b
      forebay pipeline stats orders --report orders.html
      forebay pipeline stats /lake/orders --json
    """
    of_archive = is_archive or "/" in source

    def begin(spark: SparkSession, brokers: Brokers) -> Summary:
        from forebay.spark import pipelines

        found = (
            pipelines.archive_stats(spark, source)
            if of_archive
            else pipelines.topic_stats(spark, brokers, source)
        )
        if report is not None:
            pipelines.write_report(found, report)
        return found.summary(report, full=as_json)

    def check(brokers: Brokers) -> None:
        if report is not None:
            check_report(report)
        if not of_archive:
            brokers.partitions(source)

    reads = source if of_archive else None
    step = Step(
        name=f"stats of {source}",
        start=begin,
        check=check,
        reads=reads,
        plan=lambda _brokers: stats_plan(source, of_archive=of_archive, report=report),
    )
    run_or_collect(step, engine, None if of_archive else client, as_json)
