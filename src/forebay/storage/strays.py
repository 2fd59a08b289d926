"""Logs that are kept although no partition uses them, until a person decides about them.

The directory of such a log has a file `.stray`, which says which log it is, why it is not used, and since
when. Mostly it also has another name, `NAME.RANDOM-stray`, so that a new log of the partition can take its
place. A log of a topic that the store does not know at a broker's start keeps its name: if the topic appears
in the store again, the log is used again.

`restore` gives a log its name back, for a broker that is stopped. It is checked when it is opened next.
"""

from __future__ import annotations

import json
import re

from forebay.core.topic_partition import TopicPartition
from forebay.errors import StorageError
from forebay.lazy import dataclass
from forebay.storage.checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    read_offsets,
    read_partition_metadata,
    write_offsets,
)
from forebay.storage.disk import Disk
from forebay.storage.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochs
from forebay.storage.log.segment.batch_file import BatchFile

NOTE = ".stray"
SUFFIX = "-stray"
UNCHECKED = ".unchecked"
POWER_LOST = b"power lost\n"
PARTITION_NAME = re.compile(r"(.+)-(\d+)")
UNKNOWN_EPOCH = 1 << 31
"""For a log whose epochs cannot be read: above every leader epoch, so that no store is newer."""

_STRAY_NAME = re.compile(r"(.+)-(\d+)\.[0-9a-f]{32}-stray")
_SEGMENT = ".log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """The note that is written when a log is no longer used."""

    topic: str
    partition: int
    reason: str
    put_aside_ms: int
    start_offset: int | None = None
    high_watermark: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The contents of a log's files, as far as their headers tell."""

    size_bytes: int
    begin_offset: int
    end_offset: int
    last_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    name: str
    """The name of the directory, inside the data directory."""
    topic: str
    partition: int
    topic_id: bytes | None
    size_bytes: int
    start_offset: int
    end_offset: int
    last_epoch: int
    reason: str
    """Empty if it was not recorded, by an older version."""
    put_aside_ms: int | None
    high_watermark: int
    in_place: bool
    """True if the directory has the partition's own name. It is used as soon as the store knows the topic."""


def write_note(disk: Disk, directory: str, note: Note) -> None:
    """Write the note, not synced: it is written on the loop. `sync_all` follows in a thread."""
    fields = {
        "topic": note.topic,
        "partition": note.partition,
        "reason": note.reason,
        "put_aside_ms": note.put_aside_ms,
        "start_offset": note.start_offset,
        "high_watermark": note.high_watermark,
    }
    disk.write_atomic(f"{directory}/{NOTE}", json.dumps(fields).encode() + b"\n", sync=False)


def read_note(disk: Disk, directory: str) -> Note | None:
    """None if there is none, or it cannot be read."""
    path = f"{directory}/{NOTE}"
    try:
        fields = json.loads(disk.read_bytes(path)) if disk.exists(path) else None
        if not isinstance(fields, dict):
            return None
        start = fields.get("start_offset")
        return Note(
            topic=str(fields["topic"]),
            partition=int(fields["partition"]),
            reason=str(fields["reason"]),
            put_aside_ms=int(fields["put_aside_ms"]),
            start_offset=None if start is None else int(start),
            high_watermark=int(fields.get("high_watermark", 0)),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def sync_all(disk: Disk, directory: str) -> None:
    """Make a log durable that was closed without a sync. Blocks; any thread."""
    for name in disk.list(directory):
        file = disk.open(f"{directory}/{name}")
        try:
            file.datasync()
        finally:
            file.close()
    disk.fsync_dir(directory)
    disk.fsync_dir(directory.rpartition("/")[0])


def survey(disk: Disk, directory: str) -> Survey:
    """Walks the headers of the last segments. Blocks; any thread."""
    names = disk.list(directory)
    bases = sorted(int(stem) for name in names if (stem := name.removesuffix(_SEGMENT)).isdigit())
    size = sum(disk.size(f"{directory}/{name}") for name in names if name.endswith(_SEGMENT))
    end, epoch = _last_batch(disk, directory, bases)
    try:
        epoch = max(epoch, LeaderEpochs(disk, directory).latest)
    except (OSError, StorageError):
        epoch = UNKNOWN_EPOCH
    if size and epoch == UNDEFINED_EPOCH:
        epoch = UNKNOWN_EPOCH  # there are messages, and neither they nor the file can tell it
    return Survey(size_bytes=size, begin_offset=bases[0] if bases else 0, end_offset=end, last_epoch=epoch)


def last_epoch(disk: Disk, directory: str) -> int:
    """The last leader epoch in a log that is not open; UNKNOWN_EPOCH if it cannot be read. Blocks."""
    try:
        return survey(disk, directory).last_epoch
    except (OSError, StorageError):
        return UNKNOWN_EPOCH


def _last_batch(disk: Disk, directory: str, bases: list[int]) -> tuple[int, int]:
    """The end of a log, and the highest leader epoch in its last segment that has any batch."""
    end, epoch = bases[-1] if bases else 0, UNDEFINED_EPOCH
    for base_offset in reversed(bases):
        found, epoch = _last_in(disk, f"{directory}/{base_offset:020}{_SEGMENT}", base_offset)
        end = max(end, found)
        if epoch != UNDEFINED_EPOCH:
            break  # else a new segment was begun, and nothing written to it
    return end, epoch


def _last_in(disk: Disk, path: str, base_offset: int) -> tuple[int, int]:
    """The end of a segment, and the highest leader epoch in it; up to the first damage."""
    end, epoch = base_offset, UNDEFINED_EPOCH
    file = disk.open(path)
    try:
        segment = BatchFile(file, base_offset)
        for _, header in segment.headers(0, segment.size):
            end, epoch = header.next_offset, max(epoch, header.partition_leader_epoch)
    except StorageError:
        pass  # a crash may have left half a batch
    finally:
        file.close()
    return end, epoch


def strays(disk: Disk, data_dir: str) -> list[Stray]:
    """Every log that no partition uses, in order of its name. Blocks; the broker may be running."""
    return [found for name in sorted(disk.list(data_dir)) if (found := _stray(disk, data_dir, name))]


def _stray(disk: Disk, data_dir: str, name: str) -> Stray | None:
    directory = f"{data_dir}/{name}"
    in_place = not name.endswith(SUFFIX)
    named = (PARTITION_NAME if in_place else _STRAY_NAME).fullmatch(name)
    if (in_place and not disk.exists(f"{directory}/{NOTE}")) or (in_place and named is None):
        return None
    note = read_note(disk, directory)
    if note is None:
        if named is None:
            return None
        note = Note(topic=named[1], partition=int(named[2]), reason="", put_aside_ms=0)
    found = survey(disk, directory)
    try:
        topic_id = read_partition_metadata(disk, directory).topic_id
    except (OSError, StorageError):
        topic_id = None
    return Stray(
        name=name,
        topic=note.topic,
        partition=note.partition,
        topic_id=topic_id,
        size_bytes=found.size_bytes,
        start_offset=max(note.start_offset or 0, found.begin_offset),
        end_offset=found.end_offset,
        last_epoch=found.last_epoch,
        reason=note.reason,
        put_aside_ms=note.put_aside_ms or None,
        high_watermark=note.high_watermark,
        in_place=in_place,
    )


def find(disk: Disk, data_dir: str, name: str) -> Stray:
    found = next((each for each in strays(disk, data_dir) if each.name == name), None)
    if found is None:
        raise StorageError(f"{data_dir} has no log {name!r} that was put aside")
    return found


def restore(disk: Disk, data_dir: str, name: str) -> str:
    """Give a log its name back, while no broker uses the data directory. Returns its path. Blocks.

    The checkpoints of its name are replaced first. It is unknown how much of it was synced, so all of it is
    checked when it is opened.
    """
    stray = find(disk, data_dir, name)
    path = f"{data_dir}/{stray.topic}-{stray.partition}"
    if stray.in_place:
        raise StorageError(f"{path} is in its place: it is used as soon as the store knows its topic")
    if disk.exists(path):
        raise StorageError(
            f"{path} is there: the partition has a log. Move that away first if this one is to take its place"
        )
    directory, key = f"{data_dir}/{name}", (stray.topic, stray.partition)
    disk.write_atomic(f"{directory}/{UNCHECKED}", POWER_LOST)
    for file in (RECOVERY_POINTS, CLEANED_OFFSETS):
        _set(disk, f"{data_dir}/{file}", key, None)
    _set(disk, f"{data_dir}/{LOG_START_OFFSETS}", key, stray.start_offset)
    _set(disk, f"{data_dir}/{HIGH_WATERMARKS}", key, min(stray.high_watermark, stray.end_offset))
    if disk.exists(f"{directory}/{NOTE}"):
        disk.remove(f"{directory}/{NOTE}")
    disk.rename(directory, path)
    disk.fsync_dir(data_dir)
    return path


def remove(disk: Disk, data_dir: str, name: str) -> None:
    """Delete a log that was set aside. One that has its own name needs a stopped broker. Blocks."""
    find(disk, data_dir, name)
    disk.remove_tree(f"{data_dir}/{name}")


def _set(disk: Disk, path: str, key: TopicPartition, offset: int | None) -> None:
    offsets = {other: value for other, value in read_offsets(disk, path).items() if other != key}
    write_offsets(disk, path, offsets if offset is None else {**offsets, key: offset})
