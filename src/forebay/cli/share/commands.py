"""`forebay share list|describe|reset-offsets|delete`."""

from __future__ import annotations

import click

from forebay.cli.share.delete import delete
from forebay.cli.share.describe import describe
from forebay.cli.share.list_groups import list_groups
from forebay.cli.share.reset_offsets import reset_offsets


@click.group()
def share() -> None:
    """List, describe, reset and delete share groups (queues)."""


share.add_command(list_groups)
share.add_command(describe)
share.add_command(reset_offsets)
share.add_command(delete)
