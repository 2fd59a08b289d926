"""The overview as tables: drawn at a terminal, plain in a pipe, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from forebay.cli.output import print_table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from forebay.cli.top.snapshot import BrokerRow, GroupRow, Overview, TopicRow

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400


def as_dict(found: Overview) -> dict[str, Any]:
    return {
        "messages_per_second": found.rate,
        "brokers": [_broker_dict(row) for row in found.brokers],
        "topics": [
            {
                "topic": row.name,
                "partitions": row.partitions,
                "messages_per_second": row.rate,
                "bytes": row.bytes,
            }
            for row in found.topics
        ],
        "groups": [
            {
                "group": row.group.name,
                "type": row.group.kind,
                "state": row.group.state,
                "lag": row.group.messages,
                "lag_seconds": row.group.seconds,
                "messages_per_second": row.rate,
            }
            for row in found.groups
        ],
        "problems": found.problems,
    }


def _broker_dict(row: BrokerRow) -> dict[str, Any]:
    return {
        "broker": row.load.id,
        "address": row.load.address,
        "rack": row.load.rack,
        "state": _state(row),
        "controller": row.load.controller,
        "leaders": row.load.leaders,
        "replicas": row.load.replicas,
        "out_of_sync": row.load.out_of_sync,
        "messages_per_second": row.rate,
        "disk_free_bytes": None if row.disk is None else row.disk.free_bytes,
        "disk_total_bytes": None if row.disk is None else row.disk.total_bytes,
    }


# -- tables --------------------------------------------------------------------------------------------

_BROKERS = ("BROKER", "ADDRESS", "RACK", "STATE", "LEADERS", "REPLICAS", "OUT OF SYNC", "MSG/S", "DISK FREE")
_TOPICS = ("TOPIC", "PARTITIONS", "MSG/S", "SIZE")
_GROUPS = ("GROUP", "TYPE", "STATE", "LAG", "BEHIND", "READS/S", "CAUGHT UP IN")


def _state(row: BrokerRow) -> str:
    if not row.load.alive:
        return "away"
    return "silent" if row.is_silent else "drained" if row.load.drained else "up"


def _broker_cells(row: BrokerRow) -> list[str]:
    load, disk = row.load, row.disk
    name = f"{load.id} (controller)" if load.controller else str(load.id)
    free = "-" if disk is None or disk.total_bytes <= 0 else f"{disk.free_bytes / disk.total_bytes:.0%}"
    return [
        name,
        load.address,
        load.rack or "-",
        _state(row),
        str(load.leaders),
        str(load.replicas),
        str(load.out_of_sync),
        rate_text(row.rate),
        free,
    ]


def _topic_cells(row: TopicRow) -> list[str]:
    return [row.name, str(row.partitions), rate_text(row.rate), bytes_text(row.bytes)]


def _group_cells(row: GroupRow) -> list[str]:
    group = row.group
    return [
        group.name,
        group.kind,
        group.state,
        f"{group.messages:,}",
        "-" if group.seconds is None else duration_text(group.seconds),
        rate_text(row.rate),
        _left_text(row),
    ]


def _left_text(row: GroupRow) -> str:
    """How long the lag takes at the present rate, if nothing new came."""
    if not row.group.messages:
        return "now"
    return duration_text(row.group.messages / row.rate) if row.rate else "-"


def _tables(found: Overview) -> Iterator[tuple[Sequence[str], list[list[str]]]]:
    yield _BROKERS, [_broker_cells(row) for row in found.brokers]
    yield _TOPICS, [_topic_cells(row) for row in found.topics]
    yield _GROUPS, [_group_cells(row) for row in found.groups]


def print_overview(found: Overview) -> None:
    click.echo(f"{rate_text(found.rate)} messages a second")
    for headers, rows in _tables(found):
        if rows:
            click.echo()
            print_table(headers, rows)
    click.echo()
    click.echo("\n".join(f"! {problem}" for problem in found.problems) or "no problems")


def render(found: Overview) -> Group:
    """For a terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"{rate_text(found.rate)} messages a second", style="bold")]
    parts += [_drawn(headers, rows) for headers, rows in _tables(found) if rows]
    parts += [Text(f"! {problem}", style="red") for problem in found.problems]
    if not found.problems:
        parts.append(Text("no problems", style="green"))
    parts.append(Text("Ctrl-C ends it", style="dim"))
    return Group(*parts)


def waiting(reason: str) -> RenderableType:
    from rich.text import Text

    return Text(f"{reason}\ntrying again; Ctrl-C ends it", style="red")


def _drawn(headers: Sequence[str], rows: list[list[str]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", expand=False)
    for number, header in enumerate(headers):
        table.add_column(
            header, justify="left" if number == 0 else "right", overflow="ellipsis", no_wrap=True
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


# -- numbers -------------------------------------------------------------------------------------------


def rate_text(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def bytes_text(size: int | None) -> str:
    if size is None:
        return "-"
    value = float(size)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def duration_text(seconds: float) -> str:
    if seconds < _MINUTE_S:
        return f"{seconds:.1f} s"
    if seconds < _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h" if seconds < _DAY_S else f"{seconds / _DAY_S:.1f} d"
