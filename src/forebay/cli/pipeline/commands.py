"""`forebay pipeline archive|compact|replay|sql|stats|run`: ready pipelines on Spark.

Each command says what to do as a `Step`; `run.py` runs it. Spark is imported when a step runs, so
that the help of these commands is there at once and without it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, client_options, pairs_option
from forebay.cli.durations import time_option
from forebay.cli.output import json_option
from forebay.cli.pipeline.checks import check_archive_target, check_checkpoint, check_report
from forebay.cli.pipeline.engine import Engine, engine_options
from forebay.cli.pipeline.plan import StepPlan, trigger_text
from forebay.cli.pipeline.run import plan_steps, run_or_collect, run_steps
from forebay.cli.pipeline.step import Step
from forebay.cli.pipeline.step_plans import archive_plan, compact_plan, replay_plan, sql_plan, stats_plan
from forebay.cli.pipeline.steps_file import load, steps_of
from forebay.operations.positions import TIME_HELP

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from forebay.spark.pipelines import Brokers, DecodeSettings, Job, SqlSettings, Summary

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_SIZE = re.compile(r"(\d+)\s*([KMG]?)B?", re.IGNORECASE)

once_option = click.option("--once", is_flag=True, help="What is there now, then end.")
every_option = click.option("--every", metavar="TIME", help="A batch every 30s, 1m, 1h; runs until Ctrl-C.")
registry_option = click.option(
    "--registry", metavar="URL", help="A schema registry, for the formats confluent-*: http://HOST:8081."
)
checkpoint_option = click.option("--checkpoint", metavar="DIR", help="Where Spark keeps how far it has come.")

data_loss_option = click.option(
    "--on-data-loss",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="When messages were deleted before they were read, or the topic was made anew.",
)
unreadable_option = click.option(
    "--on-unreadable",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="When messages cannot be decoded; skip passes over them and counts them.",
)


@click.group()
def pipeline() -> None:
    """Archive, replay, query and measure topics with Spark."""


@pipeline.command()
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
    every_ms = _every_ms(once, every if once else every or "1m")
    if (decode is None) != (registry is None):
        raise click.UsageError("--decode and --registry belong together: give both")

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
            tolerance=pipelines.Tolerance(on_data_loss=on_data_loss, on_unreadable=on_unreadable),
        )
        return pipelines.archive(spark, brokers, topic, to, settings)

    def check(brokers: Brokers) -> None:
        check_archive_target(brokers, topic, to, form, decoding())
        check_checkpoint(checkpoint)

    def is_short(brokers: Brokers) -> bool:
        from forebay.spark.pipelines.archiving.archive import is_short

        return once and is_short(brokers, topic, to)

    def plan(_brokers: Brokers) -> StepPlan:
        trigger = trigger_text(once, every or "1m")
        return archive_plan(
            topic, to, form=form, trigger=trigger, group=group, decode=decode, checkpoint=checkpoint
        )

    step = Step(name=f"archive {topic}", start=start, check=check, plan=plan, makes=to, is_short=is_short)
    run_or_collect(step, engine, client, as_json)


@pipeline.command()
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


@pipeline.command()
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


@pipeline.command()
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
    every_ms = _every_ms(once, every)

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


@pipeline.command()
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


@pipeline.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--plan", "only_plan", is_flag=True, help="Show what the steps will do, and do nothing.")
@json_option
@engine_options
@client_options
@click.pass_context
def run(
    context: click.Context, file: Path, only_plan: bool, as_json: bool, engine: Engine, client: Client
) -> None:
    """Run the steps that a YAML file declares, with one Spark session.

    \b
    Exit codes: 0 done, or stopped while only steps without an end were left; 1 a step failed;
    2 asked wrongly; 65 messages are gone or cannot be read; 75 brokers or Spark cannot be reached:
    try again later; 130 and 143 stopped by Ctrl-C or SIGTERM before the end.
    """
    declared = load(file)
    steps = steps_of(pipeline, declared, context)
    engine, client = declared.engine(context, engine), declared.client(context, client)
    if only_plan:
        plan_steps(steps, engine, client, as_json)
    else:
        run_steps(steps, engine, client, as_json)


def _every_ms(once: bool, every: str | None) -> int:
    if once and every is not None:
        raise click.UsageError("--once and --every exclude each other")
    if every is None:
        return 0
    parts = _DURATION.fullmatch(every)
    if parts is None:
        raise click.UsageError(f"{every!r} is no time: give 500ms, 30s, 1m, 1h or 1d")
    return int(parts[1]) * _UNIT_MS[parts[2]]


def _size(text: str) -> int:
    parts = _SIZE.fullmatch(text.strip())
    if parts is None or not int(parts[1]):
        raise click.UsageError(f"{text!r} is no size: give 64MB, 1GB or a number of bytes")
    return int(parts[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[parts[2].upper()]


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
