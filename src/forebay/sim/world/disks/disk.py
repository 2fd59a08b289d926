"""A disk in memory that behaves like a real one in a power failure: unsynced data may be lost.

The rules are POSIX's, taken strictly. The bytes of a file up to the last sync are safe. Of bytes appended
since, some prefix is left, perhaps damaged at its end; and an unsynced truncation may have been undone. A
created, renamed or removed name is safe once its directory was synced; of later changes to a directory a
prefix has happened. A process that is killed loses nothing: the system keeps what it was given.

`SimDisk` is the device, which outlives its processes. A process works through a `DiskHandle`
(disk_handle.py), which goes dead with it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field

from forebay.errors import ProtocolError
from forebay.lazy import dataclass
from forebay.wire.batch import HEADER_SIZE, split

_DAMAGE_CHANCE = 0.3
_DAMAGED_BYTES_MAX = 32
_ROTTEN_BYTES_MAX = 8
_HEADER_CHANCE = 0.5
_HEADER_BYTES = (*range(8, 12), *range(16, HEADER_SIZE))
"""The bytes that the CRC covers, the length and the magic."""
_SEGMENT_FILES = (".log", ".index", ".timeindex", ".txnindex")


@dataclass(eq=False, slots=True)
class Inode:
    content: bytearray = field(default_factory=bytearray)
    synced_size: int = 0
    undone: bytes | None = None
    """The safe bytes before a truncation that has not been synced."""
    in_one_sector: bool = False
    """Small, and written at once: it is there as a whole or not at all."""

    def truncate(self, size: int) -> None:
        if size < self.synced_size:
            if self.undone is None:
                self.undone = bytes(self.content[: self.synced_size])
            self.synced_size = size
        del self.content[size:]

    def sync(self) -> None:
        self.synced_size = len(self.content)
        self.undone = None

    def lose_power(self, chance: random.Random) -> None:
        if self.undone is not None and chance.random() < 0.5:
            self.content[:] = self.undone
        else:
            unsynced = len(self.content) - self.synced_size
            if self.in_one_sector and unsynced:
                unsynced = unsynced if chance.random() < 0.5 else 0
                del self.content[self.synced_size + unsynced :]
                self.sync()
                return
            del self.content[self.synced_size + (chance.randint(0, unsynced) if unsynced else 0) :]
            self._damage(chance)
        self.sync()

    def _damage(self, chance: random.Random) -> None:
        """Blocks reach the disk in any order: the end of the remaining bytes may never have been written."""
        size = min(len(self.content) - self.synced_size, _DAMAGED_BYTES_MAX)
        if size and chance.random() < _DAMAGE_CHANCE:
            self.content[-size:] = bytes(size)


@dataclass(frozen=True, slots=True)
class _Change:
    """Something that happened to the names in a directory, not synced yet."""

    directory: str
    apply: Callable[[dict[str, Inode | None]], None]


class SimDisk:
    """Names to inodes, None for a directory; and the same as it would be after a power failure."""

    def __init__(self, chance: random.Random) -> None:
        self.names: dict[str, Inode | None] = {}
        self.locks: dict[str, tuple[object, str]] = {}
        self.rotten = False
        """True if a file returns other bytes than were written."""
        self.fault: Callable[[str, str], None] | None = None
        """Called with an operation and a path before it is done; may raise OSError."""
        self.on_directory_renamed: Callable[[str, str], None] = lambda *_: None
        """Called with both names before a directory gets another one."""
        self.slow_s = 0.0
        """The minimum time of threads that use it."""
        self.refused: Counter[tuple[str, str, int]] = Counter()
        """The number of refusals of an operation on a path since the last check; for reads, at a position."""
        self.boot = 1
        self._chance = chance
        self._safe: dict[str, Inode | None] = {}
        self._changes: list[_Change] = []

    def change(self, directory: str, apply: Callable[[dict[str, Inode | None]], None]) -> None:
        apply(self.names)
        self._changes.append(_Change(directory, apply))

    def sync_names(self, directory: str) -> None:
        for change in self._changes:
            if change.directory == directory:
                change.apply(self._safe)
        self._changes = [change for change in self._changes if change.directory != directory]

    def lose_power(self) -> None:
        self.boot += 1
        self.locks.clear()
        for directory in sorted({change.directory for change in self._changes}):
            changes = [change for change in self._changes if change.directory == directory]
            for change in changes[: self._chance.randint(0, len(changes))]:
                change.apply(self._safe)
        self._changes.clear()
        # A name in a directory that is not there itself cannot be reached.
        self._safe = {path: inode for path, inode in self._safe.items() if self._reachable(path)}
        self.names = dict(self._safe)
        for path in sorted(self.names):
            inode = self.names[path]
            if inode is not None:
                inode.lose_power(self._chance)

    def erase(self) -> None:
        """A new, empty disk in the place of this one."""
        self.rotten = False
        self.boot += 1
        self.names, self._safe = {}, {}
        self._changes.clear()
        self.locks.clear()

    def directories(self, path: str) -> list[str]:
        """The directories that lie in another."""
        return sorted(name for name, inode in self.names.items() if inode is None and parent(name) == path)

    def lose_files(self, directory: str, suffixes: tuple[str, ...]) -> int:
        """Remove files, or restore a directory without them; returns their number."""
        gone = [name for name in self.names if parent(name) == directory and name.endswith(suffixes)]
        for name in gone:
            self.change(directory, lambda names, name=name: names.pop(name, None))  # type: ignore[misc]
        self.sync_names(directory)
        return len(gone)

    def rot(self, path: str, favourite: str | None = None) -> tuple[str, list[int]] | None:
        """Change some bytes of a segment that is complete, or of its indexes: returns the file, if there is
        one, and the offsets of its damaged batches.

        `favourite`: the directory whose logs are damaged, if it has any that are complete.
        """
        logs = (
            [] if favourite is None else [each for each in self._complete(favourite) if each.endswith(".log")]
        )
        found = logs or [file for directory in self.directories(path) for file in self._complete(directory)]
        return self._rot(found)

    def rot_segment(self, directory: str) -> tuple[str, list[int]] | None:
        """Like `rot`, for a segment of one log."""
        return self._rot([file for file in self._complete(directory) if file.endswith(".log")])

    def _rot(self, found: Sequence[str]) -> tuple[str, list[int]] | None:
        if not found:
            return None
        name = self._chance.choice(found)
        inode = self.names[name]
        assert inode is not None
        before = bytes(inode.content)
        if name.endswith(".log") and self._chance.random() < _HEADER_CHANCE:
            self._flip_in_header(inode.content)
        else:
            at = self._chance.randrange(len(inode.content))
            length = min(self._chance.randint(1, _ROTTEN_BYTES_MAX), len(inode.content) - at)
            inode.content[at : at + length] = self._chance.randbytes(length)
        self.rotten = True
        if not name.endswith(".log"):
            return name, []
        _mend_unprotected(inode.content, before)
        return name, _damaged_offsets(inode.content, before)

    def _flip_in_header(self, content: bytearray) -> None:
        """Flip one bit of a batch header, such as its length, its flags or its count."""
        with suppress(ProtocolError):
            start, _ = self._chance.choice(split(memoryview(bytes(content))))
            content[start + self._chance.choice(_HEADER_BYTES)] ^= 1 << self._chance.randrange(8)

    def _complete(self, directory: str) -> list[str]:
        """The files of all segments of a log but the last that hold something."""
        files = [name for name in self.names if parent(name) == directory and name.endswith(_SEGMENT_FILES)]
        last = max((name for name in files if name.endswith(".log")), default="").removesuffix(".log")
        return sorted(name for name in files if not name.startswith(last) and self._size(name))

    def _size(self, name: str) -> int:
        inode = self.names[name]
        return 0 if inode is None else len(inode.content)

    def _reachable(self, path: str) -> bool:
        above = parent(path)
        return not above or (above in self._safe and self._reachable(above))


def _mend_unprotected(content: bytearray, before: bytes) -> None:
    """Restore offset and leader epoch of each batch: no CRC covers them, so damage could not be detected."""
    with suppress(ProtocolError):
        for start, _ in split(memoryview(before)):
            for part in (slice(start, start + 8), slice(start + 12, start + 16)):
                content[part] = before[part]


def _damaged_offsets(content: bytearray, before: bytes) -> list[int]:
    """The offsets of the batches that have changed. One that was damaged before may name very many."""
    damaged: list[int] = []
    with suppress(ProtocolError):
        for start, header in split(memoryview(before)):
            if content[start : start + header.size] != before[start : start + header.size]:
                end = min(header.last_offset, header.base_offset + len(before))
                damaged += range(header.base_offset, end + 1)
    return damaged


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def under(names: dict[str, Inode | None], path: str) -> list[str]:
    """The path and everything below it."""
    return [name for name in names if name == path or name.startswith(path + "/")]
