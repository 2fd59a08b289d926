"""`forebay delay show`."""

from __future__ import annotations

import time

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option, print_json
from forebay.operations.delays.delay_admin import DelayAdmin, ScheduleId, schedule_id
from forebay.operations.delays.delay_lists import json_row, time_left
from forebay.operations.messages.message_formats import iso_time, json_bytes, json_headers
from forebay.wire.messages.describe_delays import DelayedMessage


@click.command()
@click.argument("topic")
@click.argument("wanted", metavar="ID", type=schedule_id)
@json_option
@client_options
def show(topic: str, wanted: ScheduleId, as_json: bool, client: Client) -> None:
    """Show one message of TOPIC that waits, with key, value and headers.

    The first column of `forebay delay list` has its ID.
    """
    with DelayAdmin(client, topic) as admin:
        message = admin.message(wanted)
    headers = [(each.key, each.value) for each in message.headers]
    if as_json:
        contents = {**json_bytes("value", message.value), "headers": json_headers(headers)}
        print_json({**json_row(wanted, message), **contents})
    else:
        _print_message(wanted, message)


def _print_message(wanted: ScheduleId, message: DelayedMessage) -> None:
    left = time_left(message.due_ms - time.time_ns() // 1_000_000)
    about = {
        "id": str(wanted),
        "due": f"{iso_time(message.due_ms)} ({left if left == 'now' else f'in {left}'})",
        "scheduled": iso_time(message.scheduled_ms),
    }
    for name, text in about.items():
        click.echo(f"{name + ':':14}{text}")
    click.echo(b"schedule key: " + _bytes(message.schedule_key))
    for each in message.headers:
        click.echo(b"header:       %s=%s" % (each.key.encode(), _bytes(each.value)))
    click.echo(b"key:          " + _bytes(message.key))
    if message.value is None:
        click.echo("value:        -")
        return
    click.echo()
    click.echo(message.value)


def _bytes(value: bytes | None) -> bytes:
    return b"-" if value is None else value
