"""`forebay pipeline compact`: the small files of an archive, merged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from forebay.cli.output import json_option
from forebay.cli.pipeline.engine import Engine, engine_options
from forebay.cli.pipeline.run import run_or_collect
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.step_plans import compact_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Summary

_SIZE = re.compile(r"(\d+)\s*([KMG]?)B?", re.IGNORECASE)


@click.command()
@click.argument("archive", metavar="DIR_OR_URI")
@click.option(
    "--target-size", metavar="SIZE", default="256MB", show_default=True, help="How large files may become."
)
@json_option
@engine_options
def compact(archive: str, target_size: str, as_json: bool, engine: Engine) -> None:
    """Merge the small files of an archive's closed hours."""
    target_bytes = _size(target_size)

    def start(spark: SparkSession, _brokers: Brokers) -> Summary:
        from forebay.spark import pipelines

        return pipelines.compact(spark, archive, target_bytes=target_bytes)

    # Files are merged in Python: the JVM only hands them out.
    step = Step(
        name=f"compact {archive}",
        start=start,
        reads=archive,
        is_short=lambda _brokers: True,
        plan=lambda _brokers: compact_plan(archive, target_size),
    )
    run_or_collect(step, engine, None, as_json)


def _size(text: str) -> int:
    parts = _SIZE.fullmatch(text.strip())
    if parts is None or not int(parts[1]):
        raise click.UsageError(f"{text!r} is no size: give 64MB, 1GB or a number of bytes")
    return int(parts[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[parts[2].upper()]
