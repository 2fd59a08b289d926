"""Logs of workers that a host would not run any more: they must not be forgotten silently."""

from __future__ import annotations

from pathlib import Path

from forebay.errors import ConfigError
from forebay.local.workers.plan import FOLDER
from forebay.storage.strays import NOTE, PARTITION_NAME

_NAMED_MAX = 3


def check_none_left(host_dir: Path, count: int) -> None:
    """Raises ConfigError if workers beyond this number hold partitions, which would have no leader."""
    beyond = [number for number in _numbers(host_dir) if number > count]
    held = {number: found for number in beyond if (found := _held(host_dir, number))}
    if not held:
        return
    last = max(held)
    partitions = [name for found in held.values() for name in found]
    named = ", ".join(partitions[:_NAMED_MAX]) + (", ..." if len(partitions) > _NAMED_MAX else "")
    raise ConfigError(
        f"workers of this data directory that would not run hold {len(partitions)} partitions ({named}): "
        f"start with --workers {last}, move them with `forebay cluster workers {count}`, and then start with "
        f"{count}"
    )


def _numbers(host_dir: Path) -> list[int]:
    folder = host_dir / FOLDER
    if not folder.is_dir():
        return []
    return sorted(int(each.name) for each in folder.iterdir() if each.name.isdigit())


def _held(host_dir: Path, number: int) -> list[str]:
    """The partitions whose logs are in use there."""
    return sorted(
        each.name
        for each in (host_dir / FOLDER / str(number)).iterdir()
        if PARTITION_NAME.fullmatch(each.name) and each.is_dir() and not (each / NOTE).exists()
    )
