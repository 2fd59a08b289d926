"""Options that several commands have, and what their texts mean."""

from __future__ import annotations

import re

import click

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h|d)")

once_option = click.option("--once", is_flag=True, help="What is there now, then end.")
every_option = click.option("--every", metavar="TIME", help="A batch every 30s, 1m, 1h; runs until Ctrl-C.")
registry_option = click.option(
    "--registry", metavar="URL", help="A schema registry, for the formats confluent-*: http://HOST:8081."
)
checkpoint_option = click.option("--checkpoint", metavar="DIR", help="Where Spark keeps how far it has come.")

data_loss_option = click.option(
    "--on-data-loss",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="When messages were deleted before they were read, or the topic was made anew.",
)
unreadable_option = click.option(
    "--on-unreadable",
    type=click.Choice(("fail", "skip")),
    default="fail",
    show_default=True,
    help="When messages cannot be decoded; skip passes over them and counts them.",
)


def milliseconds_of(once: bool, every: str | None) -> int:
    if once and every is not None:
        raise click.UsageError("--once and --every exclude each other")
    if every is None:
        return 0
    parts = _DURATION.fullmatch(every)
    if parts is None:
        raise click.UsageError(f"{every!r} is no time: give 500ms, 30s, 1m, 1h or 1d")
    return int(parts[1]) * _UNIT_MS[parts[2]]
