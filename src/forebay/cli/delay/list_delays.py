"""`forebay delay list`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any

import click

from forebay.cli.client import Client, client_options
from forebay.cli.output import json_option, print_json, print_table
from forebay.operations.delay_admin import DelayAdmin, ScheduleId
from forebay.operations.message_formats import iso_time, json_bytes
from forebay.wire.messages.describe_delays import DelayedMessage

Waiting = tuple[ScheduleId, DelayedMessage]

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


def in_due_order(admin: DelayAdmin, partitions: Sequence[int], page: int) -> Iterator[Waiting]:
    """The waiting messages of these partitions; requests only as many as are consumed."""

    def waiting(partition: int) -> Iterator[Waiting]:
        for message in admin.messages(partition, page):
            yield ScheduleId(partition, message.id), message

    return merge(*(waiting(each) for each in partitions), key=_due)


def _due(waiting: Waiting) -> tuple[int, ScheduleId]:
    schedule_id, message = waiting
    return message.due_ms, schedule_id


def json_row(schedule_id: ScheduleId, message: DelayedMessage) -> dict[str, Any]:
    return {
        "id": str(schedule_id),
        "due": iso_time(message.due_ms),
        "due_ms": message.due_ms,
        "scheduled_ms": message.scheduled_ms,
        **json_bytes("schedule_key", message.schedule_key),
        **json_bytes("key", message.key),
        "value_bytes": None if message.value_size < 0 else message.value_size,
    }


def _table_row(schedule_id: ScheduleId, message: DelayedMessage, now_ms: int) -> list[object]:
    return [
        schedule_id,
        iso_time(message.due_ms),
        time_left(message.due_ms - now_ms),
        _shown(message.key),
        _shown(message.schedule_key),
        None if message.value_size < 0 else message.value_size,
    ]


def time_left(milliseconds: int) -> str:
    """The time in the two largest units: 3d 4h, 59s."""
    if milliseconds <= 0:
        return "now"
    seconds = -(-milliseconds // 1000)
    parts = []
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def _shown(data: bytes | None) -> str | None:
    """On one line of a table."""
    if data is None:
        return None
    text = data.decode(errors="replace")
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
