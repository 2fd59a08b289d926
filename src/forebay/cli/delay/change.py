"""`forebay delay cancel` and `forebay delay fire`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from forebay.cli.client import Client, client_options
from forebay.operations.delays.delay_admin import DelayAdmin, ScheduleId, schedule_id
from forebay.operations.delays.delay_lists import all_waiting, alter_waiting
from forebay.wire.messages.alter_delays import CANCEL, FIRE


def _change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        client_options,
        click.option("--yes", is_flag=True, help="Do not ask, with --all."),
        click.option("--all", "everything", is_flag=True, help="All that wait in the topic now."),
        click.argument("ids", metavar="ID...", type=schedule_id, nargs=-1),
        click.argument("topic"),
    ):
        command = option(command)
    return command


@click.command()
@_change_options
def cancel(topic: str, ids: tuple[ScheduleId, ...], everything: bool, yes: bool, client: Client) -> None:
    """Cancel messages of TOPIC that wait: they are never delivered.

    \b
      forebay delay cancel reminders 0-1742 2-17
      forebay delay cancel reminders --all
    """
    _change(client, topic, ids, everything, yes, CANCEL, "cancelled")


@click.command()
@_change_options
def fire(topic: str, ids: tuple[ScheduleId, ...], everything: bool, yes: bool, client: Client) -> None:
    """Deliver messages of TOPIC now, before they are due.

    \b
      forebay delay fire reminders 0-1742
    """
    _change(client, topic, ids, everything, yes, FIRE, "fired")


def _change(
    client: Client,
    topic: str,
    ids: Sequence[ScheduleId],
    everything: bool,
    yes: bool,
    action: int,
    done: str,
) -> None:
    if bool(ids) == everything:
        raise click.UsageError("name messages by their IDs, or all of them with --all")
    with DelayAdmin(client, topic) as admin:
        if everything:
            ids = all_waiting(admin)
            if ids and not yes:
                _confirm(len(ids), topic, done)
        count, problem = alter_waiting(admin, action, ids, everything=everything)
    click.echo(f"{done} {count:,} message{'' if count == 1 else 's'} of {topic}")
    if problem is not None:
        raise problem


def _confirm(count: int, topic: str, done: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("--all needs --yes when nobody can be asked")
    click.confirm(f"{count:,} messages of {topic} will be {done}. Go on?", abort=True)
