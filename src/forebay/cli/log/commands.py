"""The group `forebay log`: its commands work on files and need no broker."""

from __future__ import annotations

import click

from forebay.cli.log.dump import dump
from forebay.cli.log.strays import strays


@click.group()
def log() -> None:
    """Look into the log's files, and at logs that were put aside."""


log.add_command(dump)
log.add_command(strays)
