"""`forebay delay list`."""

from __future__ import annotations

import time
from itertools import islice

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.delays.delay_admin import DelayAdmin, ScheduleId
from forebay.operations.delays.delay_lists import in_due_order, json_row, time_left
from forebay.operations.messages.message_formats import iso_time
from forebay.wire.messages.describe_delays import DelayedMessage

_SHOWN_CHARS = 40


@click.command(name="list")
@click.argument("topic")
@click.option("--partition", metavar="N", type=click.IntRange(min=0), help="Only this one. [default: all]")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many at most.",
)
@json_option
@client_options
def list_delays(topic: str, partition: int | None, limit: int, as_json: bool, client: Client) -> None:
    """List the messages of TOPIC that wait for their time, those that are due first.

    \b
      forebay delay list reminders --limit 10
    """
    with DelayAdmin(client, topic) as admin:
        partitions = admin.partitions() if partition is None else [partition]
        waiting = list(islice(in_due_order(admin, partitions, limit), limit))
        pending = sum(admin.pending(each) for each in partitions)
    if as_json:
        print_json({"pending": pending, "messages": [json_row(*each) for each in waiting]})
    elif waiting:
        now_ms = time.time_ns() // 1_000_000
        rows = [_table_row(*each, now_ms) for each in waiting]
        print_table(("ID", "DUE", "IN", "KEY", "SCHEDULE KEY", "BYTES"), rows)
        if pending > len(waiting):
            click.echo(f"{pending - len(waiting):,} more wait", err=True)
    else:
        click.echo(f"no message waits in {topic}", err=True)


def _table_row(schedule_id: ScheduleId, message: DelayedMessage, now_ms: int) -> list[object]:
    return [
        schedule_id,
        iso_time(message.due_ms),
        time_left(message.due_ms - now_ms),
        _shown(message.key),
        _shown(message.schedule_key),
        None if message.value_size < 0 else message.value_size,
    ]


def _shown(data: bytes | None) -> str | None:
    """On one line of a table."""
    if data is None:
        return None
    text = data.decode(errors="replace")
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
