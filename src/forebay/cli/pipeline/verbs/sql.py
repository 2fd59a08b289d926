"""`forebay pipeline sql`: a query over topics, into a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, client_options, pairs_option
from forebay.cli.output import json_option
from forebay.cli.pipeline.checks import check_checkpoint
from forebay.cli.pipeline.engine import Engine, engine_options
from forebay.cli.pipeline.plan import StepPlan, trigger_text
from forebay.cli.pipeline.run import run_or_collect
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.step_plans import sql_plan
from forebay.cli.pipeline.verbs.options import (
    checkpoint_option,
    data_loss_option,
    every_option,
    milliseconds_of,
    once_option,
    registry_option,
    unreadable_option,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, Job, SqlSettings


@click.command()
@click.argument("query")
@click.option("--to", required=True, metavar="TOPIC", help="Where the results go; it must exist.")
@pairs_option(
    "--schema",
    "schemas",
    metavar="TOPIC=SCHEMA",
    help="The values of a topic: 'id INT, at TIMESTAMP', @FILE with that, or @FILE.avsc; may be repeated."
    " [default: inferred]",
)
@pairs_option(
    "--format",
    "formats",
    metavar="TOPIC=FORMAT",
    help="json, text, avro, confluent-avro, confluent-protobuf or confluent-json; may be repeated.",
)
@registry_option
@pairs_option(
    "--watermark",
    "watermarks",
    metavar="TOPIC=DELAY",
    help="How late messages may be: '10 seconds', or 'COLUMN 10 seconds'; may be repeated.",
)
@click.option(
    "--key", metavar="COLUMN", help="The column that becomes the key. [default: key, if there is one]"
)
@click.option(
    "--mode",
    type=click.Choice(("append", "complete", "update")),
    default="append",
    show_default=True,
    help="Which rows of an aggregate are written: each when it is final, all at every change, or those that"
    " have changed.",
)
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    help="Where values go that do not fit their schema, with the reason. [default: they are rows of nulls]",
)
@click.option(
    "--start",
    type=click.Choice(("earliest", "latest")),
    default="earliest",
    show_default=True,
    help="Where to begin without a checkpoint.",
)
@once_option
@every_option
@data_loss_option
@unreadable_option
@checkpoint_option
@json_option
@engine_options
@client_options
def sql(
    query: str,
    to: str,
    schemas: list[tuple[str, str]],
    formats: list[tuple[str, str]],
    registry: str | None,
    watermarks: list[tuple[str, str]],
    key: str | None,
    mode: str,
    dead_letters: str | None,
    start: str,
    once: bool,
    every: str | None,
    on_data_loss: str,
    on_unreadable: str,
    checkpoint: str | None,
    as_json: bool,
    engine: Engine,
    client: Client,
) -> None:
    """Run a query over topics for ever, or once, and write its results to a topic, exactly once.

    \b
      forebay pipeline sql --to totals --key country "
        SELECT window(_timestamp, '1 minute').start AS minute, country, sum(amount) AS total
        FROM stream('orders', watermark => '1 minute') GROUP BY window(_timestamp, '1 minute'), country"
    """
    every_ms = milliseconds_of(once, every)

    def settings() -> SqlSettings:
        from forebay.spark import pipelines

        return pipelines.SqlSettings(
            schemas=dict(schemas),
            formats=dict(formats),
            registry=registry,
            watermarks=dict(watermarks),
            key=key,
            mode=mode,
            trigger=pipelines.Trigger(once=once, every_ms=every_ms),
            start=start,
            checkpoint=checkpoint,
            dead_letters=dead_letters,
            tolerance=pipelines.Tolerance(on_data_loss=on_data_loss, on_unreadable=on_unreadable),
        )

    def begin(spark: SparkSession, brokers: Brokers) -> Job:
        from forebay.spark import pipelines

        return pipelines.sql(spark, brokers, query, to, settings())

    def check(brokers: Brokers) -> None:
        from forebay.spark.pipelines.queries.sql import check, checkpoint_of

        wanted = settings()
        check(brokers, query, to, wanted)
        check_checkpoint(checkpoint_of(brokers, query, to, wanted))

    def plan(brokers: Brokers) -> StepPlan:
        return sql_plan(brokers, query, to, settings(), trigger_text(once, every))

    run_or_collect(Step(name=f"sql to {to}", start=begin, check=check, plan=plan), engine, client, as_json)
