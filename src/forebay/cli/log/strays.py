"""`forebay log strays`: logs that a broker has set aside, because it could not be sure to delete them.

The commands work on the data directory itself and need no broker.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from forebay.cli.deletion import confirm
from forebay.cli.output import json_option, print_json, print_table
from forebay.core.cluster.stored.image_text import topic_id_text
from forebay.operations.messages.message_formats import iso_time
from forebay.storage import strays as kept
from forebay.storage.datadir import LOCK, DataDirLocked
from forebay.storage.disk import Locked
from forebay.storage.real_disk import RealDisk

_data_dir_option = click.option(
    "--data-dir",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The data directory of a broker (log.dirs).",
)


@click.group()
def strays() -> None:
    """Logs that were put aside: list them, take one back, remove one."""


@strays.command("list")
@_data_dir_option
@json_option
def list_(data_dir: Path, as_json: bool) -> None:
    """Show the logs that no partition uses, why, and what they hold.

    The broker may be running.
    """
    found = kept.strays(RealDisk(), str(data_dir))
    if as_json:
        print_json([_fields(stray) for stray in found])
        return
    print_table(
        ("DIRECTORY", "TOPIC", "PARTITION", "TOPIC ID", "BYTES", "START", "END", "EPOCH", "SINCE", "REASON"),
        [
            (
                stray.name,
                stray.topic,
                stray.partition,
                _id_text(stray),
                stray.size_bytes,
                stray.start_offset,
                stray.end_offset,
                stray.last_epoch,
                _since(stray),
                stray.reason or None,
            )
            for stray in found
        ],
    )


@strays.command()
@click.argument("name")
@_data_dir_option
def restore(name: str, data_dir: Path) -> None:
    """Give the log in directory NAME its partition's name back. The broker has to be stopped.

    It is used when the broker starts, if the store then says that the partition is the broker's and has this
    topic id. Refused while the partition has a log.
    """
    with _locked(data_dir) as disk:
        click.echo(f"restored {kept.restore(disk, str(data_dir), name)}")


@strays.command()
@click.argument("name")
@_data_dir_option
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(name: str, data_dir: Path, yes: bool) -> None:
    """Delete the log in directory NAME for good.

    One that still has its partition's name can only be removed while the broker is stopped.
    """
    disk = RealDisk()
    found = kept.find(disk, str(data_dir), name)
    if not yes:
        confirm([name], f"its offsets {found.start_offset} to {found.end_offset}")
    if found.in_place:
        with _locked(data_dir) as disk:
            kept.remove(disk, str(data_dir), name)
    else:
        kept.remove(disk, str(data_dir), name)
    click.echo(f"removed {name}")


@contextmanager
def _locked(data_dir: Path) -> Iterator[RealDisk]:
    disk = RealDisk()
    try:
        lock = disk.lock(f"{data_dir}/{LOCK}", str(os.getpid()))
    except Locked as locked:
        raise DataDirLocked(str(data_dir), locked.holder) from None
    try:
        yield disk
    finally:
        lock.release()


def _fields(stray: kept.Stray) -> dict[str, Any]:
    return {
        "directory": stray.name,
        "topic": stray.topic,
        "partition": stray.partition,
        "topic_id": _id_text(stray),
        "size_bytes": stray.size_bytes,
        "start_offset": stray.start_offset,
        "end_offset": stray.end_offset,
        "last_leader_epoch": stray.last_epoch,
        "since": _since(stray),
        "reason": stray.reason or None,
        "in_place": stray.in_place,
    }


def _id_text(stray: kept.Stray) -> str | None:
    return None if stray.topic_id is None else topic_id_text(stray.topic_id)


def _since(stray: kept.Stray) -> str | None:
    return None if stray.put_aside_ms is None else iso_time(stray.put_aside_ms)
