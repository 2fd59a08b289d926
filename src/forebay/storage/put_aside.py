"""Directories of logs that a data directory does not use any more: kept for a person, or about to be removed.

A log that is kept has a note (`strays.py`). Mostly it gets another name, so that a new log of its partition
can take its place. `count` is how many there are. A log that is to be removed is renamed first, so that its
rest after a crash is not taken for a log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from forebay.core.topic_partition import TopicPartition
from forebay.storage import strays
from forebay.storage.checkpoint import PARTITION_METADATA
from forebay.storage.disk import Disk
from forebay.storage.log.leader_epochs import LEADER_EPOCHS

_DELETED_SUFFIX = "-delete"
_NAME_CHARS_KEPT = 200
_COPY_BYTES = 1 << 20


class PutAside:
    def __init__(self, disk: Disk, path: str, entropy: Callable[[int], bytes]) -> None:
        self._disk = disk
        self._path = path
        self._entropy = entropy
        self.count = len(stray_names(disk, path))
        """Logs that are kept although no partition uses them."""

    def keep(self, note: strays.Note) -> str:
        """Keep the log of a partition under another name; the path is for `sync`."""
        directory = self._directory(note)
        strays.write_note(self._disk, directory, note)
        path = self._new_path(note.topic, note.partition, strays.SUFFIX)
        self._disk.rename(directory, path)
        self.count += 1
        return path

    def keep_in_place(self, note: strays.Note) -> None:
        """Say in a directory that no partition uses its log; it keeps its name. Blocks."""
        directory = self._directory(note)
        if strays.read_note(self._disk, directory) is None:
            strays.write_note(self._disk, directory, note)
        self.count += 1

    def copy(self, note: strays.Note, offset: int) -> str:
        """Keep a copy of a log from the segment with this offset on. Blocks; any thread that has the log.

        A copy that a crash left unfinished is removed at the next start.
        """
        directory = self._directory(note)
        path = self._new_path(note.topic, note.partition, strays.SUFFIX)
        unfinished = f"{path}{_DELETED_SUFFIX}"
        self._disk.mkdirs(unfinished)
        try:
            for file in _files_from(self._disk.list(directory), offset):
                _copy(self._disk, f"{directory}/{file}", f"{unfinished}/{file}")
            strays.write_note(self._disk, unfinished, note)
            strays.sync_all(self._disk, unfinished)
            self._disk.rename(unfinished, path)
            self._disk.fsync_dir(self._path)
        except OSError:
            # It is tried again, perhaps for long: not another one each time.
            with suppress(OSError):
                self._disk.rename(path, unfinished)
            with suppress(OSError):
                self._disk.remove_tree(unfinished)
            raise
        self.count += 1
        return path

    def drop_copy(self, path: str) -> None:
        """Remove a copy that is not needed after all. Blocks; any thread."""
        unwanted = f"{path}{_DELETED_SUFFIX}"
        self._disk.rename(path, unwanted)
        self.count -= 1
        self.remove(unwanted)

    def sync(self, path: str) -> None:
        """Make the set-aside directories durable. Blocks; any thread."""
        strays.sync_all(self._disk, path)

    def names(self) -> list[str]:
        """The directories of unused logs, also of those that keep their name. Blocks; any thread."""
        here = (f"{topic}-{partition}" for topic, partition in partition_names(self._disk, self._path))
        in_place = [name for name in here if self._disk.exists(f"{self._path}/{name}/{strays.NOTE}")]
        return stray_names(self._disk, self._path) + in_place

    def recount(self) -> None:
        """Count again: somebody may have removed some. Blocks; any thread."""
        self.count = len(self.names())

    # -- what is to be removed -------------------------------------------------------------------------

    def delete(self, topic: str, partition: int) -> str:
        """Move a directory out of the way; the path is for `remove`."""
        path = self._new_path(topic, partition, _DELETED_SUFFIX)
        self._disk.rename(f"{self._path}/{topic}-{partition}", path)
        return path

    def remove(self, path: str) -> None:
        """Remove the files of a deleted log that was moved out of the way. Blocks; any thread."""
        # Its new name must be durable: otherwise, after a power failure, the remaining files would be found
        # under the old one.
        self._disk.fsync_dir(self._path)
        self._disk.remove_tree(path)

    def remove_all(self) -> None:
        """Remove what an earlier process has left."""
        for name in self._disk.list(self._path):
            if name.endswith(_DELETED_SUFFIX):
                self.remove(f"{self._path}/{name}")

    def _directory(self, note: strays.Note) -> str:
        return f"{self._path}/{note.topic}-{note.partition}"

    def _new_path(self, topic: str, partition: int, suffix: str) -> str:
        name = f"{topic}-{partition}"[:_NAME_CHARS_KEPT]
        return f"{self._path}/{name}.{self._entropy(16).hex()}{suffix}"


def partition_names(disk: Disk, path: str) -> list[TopicPartition]:
    """The partitions that have a directory in a data directory."""
    matches = (strays.PARTITION_NAME.fullmatch(name) for name in disk.list(path))
    return [(match[1], int(match[2])) for match in matches if match]


def stray_names(disk: Disk, path: str) -> list[str]:
    """Directories in a data directory that were put aside."""
    return [name for name in disk.list(path) if name.endswith(strays.SUFFIX)]


def _files_from(names: list[str], offset: int) -> list[str]:
    """The files of the segments from that with an offset on, and those of the log as a whole."""
    bases = [int(stem) for name in names if (stem := name.removesuffix(".log")).isdigit()]
    first = max((base for base in bases if base <= offset), default=0)
    numbered = [name for name in names if (stem := name.partition(".")[0]).isdigit() and int(stem) >= first]
    return [*numbered, *(name for name in (PARTITION_METADATA, LEADER_EPOCHS) if name in names)]


def _copy(disk: Disk, path: str, new_path: str) -> None:
    source, copy = disk.open(path), disk.open(new_path, create=True)
    try:
        position = 0
        while chunk := source.pread(_COPY_BYTES, position):
            copy.appendv([chunk])
            position += len(chunk)
    finally:
        source.close()
        copy.close()
