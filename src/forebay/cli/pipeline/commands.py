"""`forebay pipeline archive|compact|replay|sql|stats|run`: ready pipelines on Spark.

Each command says what to do as a `Step`; `run.py` runs it. Spark is imported when a step runs, so
that the help of these commands is there at once and without it.
"""

from __future__ import annotations

from pathlib import Path

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option
from forebay.cli.pipeline.engine import Engine, engine_options
from forebay.cli.pipeline.run import plan_steps, run_steps
from forebay.cli.pipeline.steps_file import load, steps_of
from forebay.cli.pipeline.verbs.archive import archive
from forebay.cli.pipeline.verbs.compact import compact
from forebay.cli.pipeline.verbs.replay import replay
from forebay.cli.pipeline.verbs.sql import sql
from forebay.cli.pipeline.verbs.stats import stats


@click.group()
def pipeline() -> None:
    """Archive, replay, query and measure topics with Spark."""


for _command in (archive, compact, replay, sql, stats):
    pipeline.add_command(_command)


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
