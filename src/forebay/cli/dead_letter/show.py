"""`forebay dead-letter show`."""

from __future__ import annotations

from typing import Any

import click

from forebay.cli.client import Client, CommandError, client_options
from forebay.cli.dead_letter.options import place
from forebay.cli.output import json_option, print_json
from forebay.operations.dead_letters.letters import Letter, json_row, letter_of
from forebay.operations.dead_letters.reading import bounds, places_of, read_lines, reader_settings
from forebay.operations.message_formats import Line, iso_time, json_bytes, json_headers


@click.command()
@click.argument("topic")
@click.argument("at", metavar="PARTITION:OFFSET")
@json_option
@client_options
def show(topic: str, at: str, as_json: bool, client: Client) -> None:
    """Show one dead letter in TOPIC, with key, value and headers of the message.

    The first column of `forebay dead-letter list` says where it is.
    """
    partition, offset = place(at)
    line = _read(client, topic, partition, offset)
    letter = None if line is None else letter_of(line)
    if letter is None:
        found = "a message that is no dead letter" if line is not None else "no message"
        raise CommandError(f"at {at} of {topic} there is {found}: `forebay dead-letter list {topic}`")
    if as_json:
        print_json({**json_row(letter), **_contents(letter)})
    else:
        _print_letter(letter)


def _read(client: Client, topic: str, partition: int, offset: int) -> Line | None:
    admin = client.admin()
    wanted = (topic, partition)
    if wanted not in places_of(client, admin, topic):
        raise CommandError(f"topic {topic} has no partition {partition}")
    starts, ends = bounds(admin, [wanted])
    if not starts[wanted] <= offset < ends[wanted]:
        return None
    consumer = client.consumer(reader_settings())
    try:
        lines = [
            line for each in read_lines(consumer, {wanted: offset}, {wanted: offset + 1}) for line in each
        ]
    finally:
        consumer.close()
    return lines[0] if lines else None


def _contents(letter: Letter) -> dict[str, Any]:
    return {
        "copied": letter.is_copy,
        **json_bytes("key", letter.line.key),
        **json_bytes("value", letter.line.value),
        "headers": json_headers(letter.headers),
    }


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
