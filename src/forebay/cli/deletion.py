"""Common parts of all deletions: asking first, and continuing after a failure."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from forebay.cli.client import CommandError, settle


def confirm(names: Sequence[str], what_goes: str) -> None:
    """Ask if these may be deleted, and `what_goes` with them; ends the command if not."""
    if not sys.stdin.isatty():
        raise click.UsageError("deleting needs --yes when nobody can be asked")
    click.confirm(f"Delete {', '.join(names)} and {what_goes}?", abort=True)


def settle_each(kind: str, futures: Mapping[str, Any]) -> None:
    """Report each deletion as it completes, and at the end those that failed."""
    problems = []
    for name, future in futures.items():
        try:
            settle(future)
            click.echo(f"deleted {kind} {name}")
        except CommandError as error:
            problems.append(f"{kind} {name}: {error}")
    if problems:
        raise CommandError("\n".join(problems))
