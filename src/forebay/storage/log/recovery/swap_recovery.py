"""Completes a swap of compacted segments (compaction/swap.py) that a crash has interrupted, at opening."""

from __future__ import annotations

import logging

from forebay.storage.disk import Disk
from forebay.storage.log.segment.batch_parts import CorruptBatch
from forebay.storage.log.segment.segment import Segment, segment_name

log = logging.getLogger(__name__)

CLEANED = ".cleaned"
SWAP = ".swap"

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def remove_files(disk: Disk, segment: Segment) -> None:
    """Remove the `.log` file last: while it exists, the other files are known to belong to it."""
    segment.close()
    for file in reversed(segment.files()):
        disk.remove(file.path)


def complete_swaps(disk: Disk, directory: str) -> list[str]:
    """After a crash: finish swaps that had been decided. Files that are still `.cleaned` had not. Blocks.

    Returns the names of all files in the directory.
    """
    listed = disk.list(directory)
    if not any(name.endswith(SWAP) for name in listed):
        return listed
    names = set(listed)
    for name in sorted(names):
        stem = name.removesuffix(".log" + SWAP)
        if stem != name and stem.isdigit():
            _complete(disk, directory, int(stem))
    for name in disk.list(directory):
        if name.endswith(SWAP):
            _settle_index(disk, directory, name, names)
    disk.fsync_dir(directory)
    return disk.list(directory)


def _complete(disk: Disk, directory: str, base_offset: int) -> None:
    new = Segment(disk, directory, base_offset, suffix=SWAP)
    next_offset = base_offset + 1
    try:
        for hop in new.hops():
            next_offset = hop.last_offset + 1
    except CorruptBatch as bad:
        log.error("compacted segment damaged", extra={"why": str(bad)})
        if disk.exists(f"{directory}/{segment_name(base_offset)}.log"):
            remove_files(disk, new)  # its originals are still there
            return
    finally:
        new.close()
    log.info("completing a swap of compacted segments", extra={"path": new.file.path})
    for old in _bases(disk, directory):
        if base_offset <= old < next_offset:
            _remove_segment(disk, directory, old)
    disk.fsync_dir(directory)
    disk.rename(new.file.path, new.file.path.removesuffix(SWAP))


def _bases(disk: Disk, directory: str) -> list[int]:
    stems = {name.rpartition(".")[0] for name in disk.list(directory) if name.endswith(_SUFFIXES)}
    return sorted(int(stem) for stem in stems if stem.isdigit())


def _remove_segment(disk: Disk, directory: str, base_offset: int) -> None:
    for suffix in _SUFFIXES:
        disk.remove(f"{directory}/{segment_name(base_offset)}{suffix}")


def _settle_index(disk: Disk, directory: str, name: str, before: set[str]) -> None:
    """Handle an index that is left: of a segment that already has its name, or of an undecided one."""
    final = name.removesuffix(SWAP)
    stem = final.rpartition(".")[0]
    if f"{stem}.log{CLEANED}" in before or not disk.exists(f"{directory}/{stem}.log"):
        disk.remove(f"{directory}/{name}")
    else:
        disk.rename(f"{directory}/{name}", f"{directory}/{final}")
