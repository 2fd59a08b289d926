"""`forebay dead-letter list|show|redrive`."""

from __future__ import annotations

import click

from forebay.cli.dead_letter.list_letters import list_letters
from forebay.cli.dead_letter.redrive import redrive
from forebay.cli.dead_letter.show import show


@click.group(name="dead-letter")
def dead_letter() -> None:
    """List and show dead letters of share groups, and move them back."""


dead_letter.add_command(list_letters)
dead_letter.add_command(show)
dead_letter.add_command(redrive)
