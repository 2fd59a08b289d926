"""`forebay dead-letter list`."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

import click

from forebay.cli.client import Client, client_options
from forebay.cli.dead_letter.options import filter_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.dead_letters.letters import HEADINGS, Filter, json_row, table_row
from forebay.operations.dead_letters.positions import last_committed
from forebay.operations.dead_letters.reading import read_letters


@click.command(name="list")
@click.argument("topic")
@filter_options
@json_option
@client_options
def list_letters(topic: str, wanted: Filter, limit: int | None, as_json: bool, client: Client) -> None:
    """List the dead letters in TOPIC: where they came from, and why.

    \b
      forebay dead-letter list jobs.dead --since 1h
      forebay dead-letter list jobs.dead --group thumbnails --reason rejected
    """
    with closing(read_letters(client, topic, wanted)) as letters:
        found = list(islice(letters, limit))
    moved = last_committed(client, topic, {letter.line.partition for letter in found})
    rows = [
        (letter, known is not None and known.is_moved(letter.line.offset))
        for letter in found
        for known in [moved.get(letter.line.partition)]
    ]
    if as_json:
        print_json([{**json_row(letter), "redriven": redriven} for letter, redriven in rows])
    elif rows:
        cells = [[*table_row(letter), "yes" if redriven else None] for letter, redriven in rows]
        print_table((*HEADINGS, "REDRIVEN"), cells)
    else:
        click.echo(f"no such dead letters in {topic}", err=True)
