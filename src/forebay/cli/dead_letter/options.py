"""The options that choose dead letters."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import click

from forebay.cli.durations import time_option
from forebay.operations.client import CommandError
from forebay.operations.dead_letters.letters import Filter, place_of, source_of
from forebay.operations.messages.positions import TIME_HELP


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that choose letters; the command gets them as `wanted` and `limit`."""

    @click.option("--group", metavar="GROUP", help="Only those that this share group gave up.")
    @click.option("--source", metavar="TOPIC[:P,P]", help="Only those from this topic, or these partitions.")
    @click.option("--reason", metavar="TEXT", help="Only those whose reason has this text in it.")
    @click.option("--since", metavar="WHEN", help=f"Only those that came at or after {TIME_HELP}.")
    @click.option(
        "--at",
        metavar="PARTITION:OFFSET",
        multiple=True,
        callback=_places,
        help="Only the one at this place of the dead-letter topic; may be repeated.",
    )
    @click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N of them.")
    @functools.wraps(command)
    def with_filter(*arguments: Any, limit: int | None, **options: Any) -> Any:
        chosen = {name: options.pop(name) for name in ("group", "source", "reason", "since", "at")}
        return command(*arguments, wanted=_filter(chosen), limit=limit, **options)

    return with_filter


def _filter(options: Mapping[str, Any]) -> Filter:
    try:
        topic, partitions = source_of(options["source"])
    except CommandError as error:
        raise click.UsageError(f"--source: {error}") from None
    return Filter(
        group=options["group"],
        source=topic,
        source_partitions=partitions,
        reason=options["reason"],
        since_ms=time_option(options["since"]),
        at=frozenset(options["at"]),
    )


def place(text: str) -> tuple[int, int]:
    try:
        return place_of(text)
    except CommandError as error:
        raise click.BadParameter(str(error)) from None


def _places(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> list[tuple[int, int]]:
    return [place(text) for text in texts]
