"""The options that choose dead letters."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from forebay.cli.durations import time_option
from forebay.operations.dead_letters.letters import Filter
from forebay.operations.positions import TIME_HELP


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
    topic, partitions = None, frozenset[int]()
    if (source := options["source"]) is not None:
        match = re.fullmatch(r"([^:]+)(?::(\d+(?:,\d+)*))?", source)
        if match is None:
            raise click.UsageError(f"--source: {source!r} is not TOPIC or TOPIC:0,1")
        topic = match[1]
        partitions = frozenset(int(number) for number in (match[2] or "").split(",") if number)
    return Filter(
        group=options["group"],
        source=topic,
        source_partitions=partitions,
        reason=options["reason"],
        since_ms=time_option(options["since"]),
        at=frozenset(options["at"]),
    )


def place(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,9}):(\d{1,18})", text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not PARTITION:OFFSET, such as 0:17")
    return int(match[1]), int(match[2])


def _places(_ctx: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> list[tuple[int, int]]:
    return [place(text) for text in texts]
