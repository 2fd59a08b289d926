"""`forebay pipeline archive`: a topic in files, each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, client_options, pairs_option
from forebay.cli.output import json_option
from forebay.cli.pipeline.checks import check_archive_target, check_checkpoint
from forebay.cli.pipeline.engine import Engine, engine_options
from forebay.cli.pipeline.plan import StepPlan, trigger_text
from forebay.cli.pipeline.run import run_or_collect
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.step_plans import archive_plan
from forebay.cli.pipeline.verbs.options import (
    checkpoint_option,
    data_loss_option,
    milliseconds_of,
    once_option,
    registry_option,
    unreadable_option,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, CatalogSettings, DecodeSettings, Job


@click.command()
@click.argument("topic")
@click.option("--to", required=True, metavar="DIR_OR_URI", help="The archive; one topic each.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("parquet", "iceberg", "delta")),
    default="parquet",
    show_default=True,
    help="What the files are part of.",
)
@once_option
@click.option(
    "--every", metavar="TIME", default=None, help="A batch every 30s, 1m, 1h, until Ctrl-C. [default: 1m]"
)
@click.option("--group", metavar="NAME", help="A consumer group that shows the lag of the archive.")
@click.option(
    "--batch-records",
    metavar="N",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    help="Offsets in a batch.",
)
@click.option(
    "--decode",
    type=click.Choice(("confluent-avro", "confluent-protobuf", "confluent-json")),
    help="A column more, with the fields of the values, by their schema in a registry.",
)
@registry_option
@click.option("--subject", metavar="NAME", help="Where the schema is registered. [default: TOPIC-value]")
@click.option("--message", metavar="NAME", default="", help="Protobuf: a message other than the first.")
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    help="With --decode: where values go that do not fit, with the reason. They are archived, too.",
)
@click.option(
    "--catalog",
    metavar="NAME",
    help="Iceberg: a catalog in pyiceberg's configuration. [default: a file in the archive]",
)
@pairs_option(
    "--catalog-conf",
    metavar="KEY=VALUE",
    help="Iceberg: a setting of the catalog, such as uri=http://HOST:8181; may be repeated.",
)
@click.option("--table", metavar="NAMESPACE.NAME", help="Iceberg: the table. [default: archive.TOPIC]")
@data_loss_option
@unreadable_option
@checkpoint_option
@json_option
@engine_options
@client_options
def archive(
    topic: str,
    to: str,
    form: str,
    once: bool,
    every: str | None,
    group: str | None,
    batch_records: int,
    decode: str | None,
    registry: str | None,
    subject: str | None,
    message: str,
    dead_letters: str | None,
    catalog: str | None,
    catalog_conf: list[tuple[str, str]],
    table: str | None,
    on_data_loss: str,
    on_unreadable: str,
    checkpoint: str | None,
    as_json: bool,
    engine: Engine,
    client: Client,
) -> None:
    """Keep TOPIC in files, each message once, by date and hour.

    \b
      forebay pipeline archive orders --to /lake/orders --once
      forebay pipeline archive orders --to /lake/orders --every 1m
    """
    every_ms = milliseconds_of(once, every if once else every or "1m")
    if (decode is None) != (registry is None):
        raise click.UsageError("--decode and --registry belong together: give both")
    if catalog is None and (catalog_conf or table is not None):
        raise click.UsageError("--catalog-conf and --table are about a catalog: name it with --catalog")

    def in_catalog() -> CatalogSettings | None:
        from forebay.spark import pipelines

        if catalog is None:
            return None
        return pipelines.CatalogSettings(name=catalog, properties=dict(catalog_conf), table=table)

    def decoding() -> DecodeSettings | None:
        from forebay.spark import pipelines

        if decode is None or registry is None:
            return None
        return pipelines.DecodeSettings(format=decode, registry=registry, subject=subject, message=message)

    def start(spark: SparkSession, brokers: Brokers) -> Job:
        from forebay.spark import pipelines

        settings = pipelines.ArchiveSettings(
            format=form,
            trigger=pipelines.Trigger(once=once, every_ms=every_ms),
            checkpoint=checkpoint,
            batch_records=batch_records,
            group=group,
            decode=decoding(),
            dead_letters=dead_letters,
            catalog=in_catalog(),
            tolerance=pipelines.Tolerance(on_data_loss=on_data_loss, on_unreadable=on_unreadable),
        )
        return pipelines.archive(spark, brokers, topic, to, settings)

    def check(brokers: Brokers) -> None:
        check_archive_target(brokers, topic, to, form, decoding(), dead_letters, in_catalog())
        check_checkpoint(checkpoint)

    def is_short(brokers: Brokers) -> bool:
        from forebay.spark.pipelines.archiving.archive import is_short

        return once and is_short(brokers, topic, to)

    def plan(_brokers: Brokers) -> StepPlan:
        trigger = trigger_text(once, every or "1m")
        return archive_plan(
            topic,
            to,
            form=form,
            trigger=trigger,
            group=group,
            decode=decode,
            dead_letters=dead_letters,
            catalog=in_catalog(),
            checkpoint=checkpoint,
        )

    step = Step(name=f"archive {topic}", start=start, check=check, plan=plan, makes=to, is_short=is_short)
    run_or_collect(step, engine, client, as_json)
