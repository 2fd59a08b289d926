"""`forebay delay list|show|cancel|fire`."""

from __future__ import annotations

import click

from forebay.cli.delay.change import cancel, fire
from forebay.cli.delay.list_delays import list_delays
from forebay.cli.delay.show import show


@click.group()
def delay() -> None:
    """List, show, cancel and fire messages that wait for their time."""


delay.add_command(list_delays)
delay.add_command(show)
delay.add_command(cancel)
delay.add_command(fire)
