"""`forebay dead-letter show`."""

from __future__ import annotations

import click

from forebay.cli.client import Client, client_options
from forebay.cli.dead_letter.options import place
from forebay.cli.output import json_option, print_json
from forebay.operations.dead_letters.letters import Letter, json_contents, json_row
from forebay.operations.dead_letters.reading import read_letter
from forebay.operations.messages.message_formats import iso_time


@click.command()
@click.argument("topic")
@click.argument("at", metavar="PARTITION:OFFSET")
@json_option
@client_options
def show(topic: str, at: str, as_json: bool, client: Client) -> None:
    """Show one dead letter in TOPIC, with key, value and headers of the message.

    The first column of `forebay dead-letter list` says where it is.
    """
    letter = read_letter(client, topic, *place(at))
    if as_json:
        print_json({**json_row(letter), **json_contents(letter)})
    else:
        _print_letter(letter)


def _print_letter(letter: Letter) -> None:
    about = {
        "at": letter.at,
        "when": iso_time(letter.line.timestamp_ms),
        "source": letter.source,
        "group": letter.group,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
    }
    for name, text in about.items():
        click.echo(f"{name + ':':12}{'-' if text is None else text}")
    if not letter.is_copy:
        click.echo("there is no copy of the message: look at its source", err=True)
        return
    for name, value in letter.headers:
        click.echo(b"header:     %s=%s" % (name.encode(), b"-" if value is None else value))
    click.echo(b"key:        " + (b"-" if letter.line.key is None else letter.line.key))
    if letter.line.value is None:
        click.echo("value:      -")
        return
    click.echo()
    click.echo(letter.line.value)
