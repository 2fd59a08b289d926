"""`forebay dead-letter redrive`: first shows what would be moved, and moves it with --execute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.dead_letter.options import filter_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.dead_letters.letters import HEADINGS, Filter, json_row, table_row
from forebay.operations.dead_letters.topics import uncommitted_readers

if TYPE_CHECKING:
    from forebay.operations.dead_letters.redrive_pass import RedriveReport


@click.command()
@click.argument("topic")
@filter_options
@click.option(
    "--to", metavar="TOPIC", help="Move all of them to this topic.  [default: where each came from]"
)
@click.option(
    "--include-old",
    is_flag=True,
    help="Also letters older than offsets.retention.minutes of which nobody knows whether they were moved.",
)
@click.option("--execute", is_flag=True, help="Do it; without this, only show what would be done.")
@json_option
@client_options
def redrive(
    topic: str,
    wanted: Filter,
    limit: int | None,
    to: str | None,
    include_old: bool,
    execute: bool,
    as_json: bool,
    client: Client,
) -> None:
    """Move dead letters in TOPIC back to where they came from, each once.

    \b
      forebay dead-letter redrive jobs.dead --group thumbnails
      forebay dead-letter redrive jobs.dead --group thumbnails --since 1h --execute
      forebay dead-letter redrive jobs.dead --at 0:17 --to jobs.retry --execute
    """
    from forebay.operations.dead_letters.exactly_once import redrive_letters

    if to == topic:
        raise click.UsageError("--to is the dead-letter topic itself")
    outcome = redrive_letters(
        client, topic, wanted=wanted, limit=limit, include_old=include_old, to=to, execute=execute
    )
    if as_json:
        _print_json(topic, outcome, execute)
    else:
        _print_report(topic, outcome, execute)
    if outcome.moved and to is None:
        for line in uncommitted_readers(client.admin(), outcome.moved):
            click.echo(line, err=True)
    if execute and outcome.left:
        raise CommandError(f"{_count(len(outcome.left))} could not be moved")


def _print_json(topic: str, outcome: RedriveReport, executed: bool) -> None:
    print_json(
        {
            "topic": topic,
            "executed": executed,
            "moved": [json_row(each) for each in outcome.moved],
            "left": [{**json_row(each.letter), "why": each.why} for each in outcome.left],
        }
    )


def _print_report(topic: str, outcome: RedriveReport, executed: bool) -> None:
    if outcome.moved and not executed:
        print_table(HEADINGS, [table_row(each) for each in outcome.moved])
    for left in outcome.left:
        click.echo(f"{left.letter.at} from {left.letter.source} is left: {left.why}", err=True)
    count = _count(len(outcome.moved))
    if executed:
        click.echo(f"moved {count} of {topic}")
    elif outcome.moved:
        click.echo(f"{count} would be moved; nothing was changed: add --execute", err=True)
    else:
        click.echo(f"nothing to move in {topic}", err=True)


def _count(letters: int) -> str:
    return f"{letters} dead letter{'' if letters == 1 else 's'}"
