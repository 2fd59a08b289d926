"""`forebay pipeline replay`: an archive back into a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, client_options
from forebay.cli.durations import time_option
from forebay.cli.output import json_option
from forebay.cli.pipeline.checks import check_checkpoint
from forebay.cli.pipeline.engine import Engine, engine_options
from forebay.cli.pipeline.plan import StepPlan
from forebay.cli.pipeline.run import run_or_collect
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.step_plans import replay_plan
from forebay.cli.pipeline.verbs.options import (
    checkpoint_option,
)
from forebay.operations.messages.positions import TIME_HELP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Job


@click.command()
@click.argument("archive", metavar="DIR_OR_URI")
@click.option("--to", required=True, metavar="TOPIC", help="The topic, which must exist.")
@click.option("--from", "start", metavar="TIME", help=f"Messages from this time on: {TIME_HELP}.")
@click.option("--until", "end", metavar="TIME", help="Messages before this time.")
@click.option(
    "--rate", metavar="N", type=click.FloatRange(min=0, min_open=True), help="Messages a second, at most."
)
@click.option("--speed", metavar="FACTOR", help="The original pace, times this factor: 1x, 2x, 0.5x.")
@checkpoint_option
@json_option
@engine_options
@client_options
def replay(
    archive: str,
    to: str,
    start: str | None,
    end: str | None,
    rate: float | None,
    speed: str | None,
    checkpoint: str | None,
    as_json: bool,
    engine: Engine,
    client: Client,
) -> None:
    """Write an archive back into a topic, in order, each message once.

    \b
      forebay pipeline replay /lake/orders --to orders-again --from 2026-01-31 --until 2026-02-01 --speed 60x
    """
    if rate is not None and speed is not None:
        raise click.UsageError("--rate and --speed exclude each other")
    factor = _factor(speed)
    bounds = _time_us(start), _time_us(end)

    def begin(spark: SparkSession, brokers: Brokers) -> Job:
        from forebay.spark import pipelines

        times = pipelines.TimeRange(from_us=bounds[0], until_us=bounds[1])
        settings = pipelines.ReplaySettings(times=times, rate=rate, speed=factor, checkpoint=checkpoint)
        return pipelines.replay(spark, brokers, archive, to, settings)

    def check(brokers: Brokers) -> None:
        brokers.partitions(to)
        check_checkpoint(checkpoint)

    def plan(_brokers: Brokers) -> StepPlan:
        pace = (
            f"{speed} of the original"
            if speed
            else f"{rate:g} messages a second"
            if rate
            else "as fast as it can"
        )
        return replay_plan(archive, to, pace=pace, checkpoint=checkpoint)

    step = Step(name=f"replay {archive}", start=begin, check=check, plan=plan, reads=archive)
    run_or_collect(step, engine, client, as_json)


def _factor(speed: str | None) -> float | None:
    if speed is None:
        return None
    try:
        factor = float(speed.lower().removesuffix("x"))
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise click.UsageError(f"--speed {speed} is no speed: give 1x, 2x or 0.5x")
    return factor


def _time_us(text: str | None) -> int | None:
    time_ms = time_option(text)
    return None if time_ms is None else time_ms * 1000
