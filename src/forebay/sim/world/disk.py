"""A disk in memory that behaves as a real one does when the power goes: what was not synced may be gone.

The rules are POSIX's, taken strictly. Of a file, the bytes up to the last sync are safe; of what was
appended since, some beginning is left, perhaps with damage at its end, and a cut that was not synced may
have been undone. A name that was made, moved or removed is safe once its directory was synced; of later
changes to a directory some first ones have happened. A process that is killed loses nothing: the system
keeps what it was given.

`SimDisk` is the device, which outlives its processes. A process works through a `DiskHandle`, which goes
dead with it.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forebay.storage.disk import Buffer, File, FileClosed, Lock, Locked

_CAPACITY_BYTES = 1 << 30
_DAMAGE_CHANCE = 0.3
_DAMAGED_BYTES_MAX = 32
_SECTOR_BYTES = 512


class Died(BaseException):
    """The process ended in the middle of what it did; nothing may take this for an error to deal with."""


@dataclass(eq=False, slots=True)
class Inode:
    content: bytearray = field(default_factory=bytearray)
    synced_size: int = 0
    undone: bytes | None = None
    """What was safe before a cut that has not been synced."""
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
        """Blocks reach the disk in any order: the end of what is left may never have been written."""
        size = min(len(self.content) - self.synced_size, _DAMAGED_BYTES_MAX)
        if size and chance.random() < _DAMAGE_CHANCE:
            self.content[-size:] = bytes(size)


@dataclass(frozen=True, slots=True)
class _Change:
    """Something that happened to the names in a directory, not synced yet."""

    directory: str
    apply: Callable[[dict[str, Inode | None]], None]


class SimDisk:
    """Names to inodes, None for a directory; and the same as it would be after a loss of power."""

    def __init__(self, chance: random.Random) -> None:
        self.names: dict[str, Inode | None] = {}
        self.locks: dict[str, tuple[DiskHandle, str]] = {}
        self.fault: Callable[[str, str], None] | None = None
        """Called with an operation and a path before it is done; may raise OSError."""
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
        self.boot += 1
        self.names, self._safe = {}, {}
        self._changes.clear()
        self.locks.clear()

    def _reachable(self, path: str) -> bool:
        above = parent(path)
        return not above or (above in self._safe and self._reachable(above))


def parent(path: str) -> str:
    return path.rpartition("/")[0]


def under(names: dict[str, Inode | None], path: str) -> list[str]:
    """The path and everything below it."""
    return [name for name in names if name == path or name.startswith(path + "/")]


class SimFile:
    def __init__(self, disk: DiskHandle, path: str) -> None:
        self._disk = disk
        self._path = path
        self._inode = disk.find(path)
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    def fileno(self) -> int:
        raise AssertionError("a simulated file has no descriptor")

    def size(self) -> int:
        return len(self._inode.content) if self._inode is not None else 0

    def appendv(self, views: Sequence[Buffer]) -> None:
        self._check()
        self._disk.live("append", self._path)
        if self._inode is None:
            self._inode = self._disk.make(self._path)
        self._inode.content += b"".join(views)

    def pread(self, length: int, position: int) -> bytes:
        self._check()
        self._disk.live("read", self._path)
        return b"" if self._inode is None else bytes(self._inode.content[position : position + length])

    def cached(self, position: int, length: int) -> bool:  # noqa: ARG002 - everything is in memory
        return self._disk.is_cached()

    def datasync(self) -> None:
        self._check()
        self._disk.live("sync", self._path)
        if self._inode is None:
            self._inode = self._disk.make(self._path)
        self._inode.sync()

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.live("truncate", self._path)
        if self._inode is None:
            self._inode = self._disk.make(self._path)
        self._inode.truncate(size)

    def rename(self, path: str) -> None:
        if self._inode is not None:
            self._disk.rename(self._path, path)
        self._path = path

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed:
            raise FileClosed(self._path)


class _SimLock:
    def __init__(self, disk: SimDisk, path: str, holder: DiskHandle) -> None:
        self._disk = disk
        self._path = path
        self._holder = holder

    def release(self) -> None:
        held = self._disk.locks.get(self._path)
        if held is not None and held[0] is self._holder:
            del self._disk.locks[self._path]


class DiskHandle:
    """The disk as one process sees it: the port that a broker is given."""

    def __init__(self, disk: SimDisk, chance: random.Random, *, cold_chance: float = 0.02) -> None:
        self._disk = disk
        self._chance = chance
        self._cold_chance = cold_chance
        self._dead = False
        self.lives: int | None = None
        """How many more changes the process makes before it dies in the next; None for any number."""
        self.on_death: Callable[[], None] = lambda: None

    # -- the process's end -------------------------------------------------------------------------------

    def die(self) -> None:
        """Whatever a dead process still tries must leave no mark."""
        self._dead = True
        for path in [path for path, (holder, _) in self._disk.locks.items() if holder is self]:
            del self._disk.locks[path]

    def live(self, operation: str, path: str) -> None:
        if self._dead:
            raise Died
        if self.lives is not None and operation != "read":
            self.lives -= 1
            if self.lives < 0:
                self._dead = True
                self.on_death()
                raise Died
        if self._disk.fault is not None:
            self._disk.fault(operation, path)

    # -- what files use ----------------------------------------------------------------------------------

    def find(self, path: str) -> Inode | None:
        return self._disk.names.get(path)

    def make(self, path: str) -> Inode:
        if parent(path) not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        inode = Inode()
        self._disk.change(parent(path), lambda names: names.update({path: inode}))
        return inode

    def is_cached(self) -> bool:
        return self._chance.random() >= self._cold_chance

    # -- the port ----------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> File:
        if create:
            self.live("create", path)
            self.make(path)
        return SimFile(self, path)

    def list(self, path: str) -> list[str]:
        self.live("read", path)
        if path not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        start = path + "/"
        return sorted(
            name[len(start) :]
            for name in self._disk.names
            if name.startswith(start) and "/" not in name[len(start) :]
        )

    def mkdirs(self, path: str) -> None:
        self.live("mkdir", path)
        if path and path not in self._disk.names:
            if parent(path):
                self.mkdirs(parent(path))
            self._disk.change(parent(path), lambda names: names.setdefault(path, None))  # type: ignore[arg-type]
            if not parent(path):
                self._disk.sync_names("")  # what hangs at the root was there before us

    def exists(self, path: str) -> bool:
        return path in self._disk.names

    def size(self, path: str) -> int:
        return len(self._existing(path).content)

    def rename(self, path: str, new_path: str) -> None:
        self.live("rename", path)
        if path not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)

        def move(names: dict[str, Inode | None]) -> None:
            for name in under(names, new_path):
                del names[name]
            for name in under(names, path):
                names[new_path + name[len(path) :]] = names.pop(name)

        self._disk.change(parent(path), move)

    def remove(self, path: str) -> None:
        self.live("remove", path)
        if path in self._disk.names:
            self._disk.change(parent(path), lambda names: names.pop(path, None))  # type: ignore[arg-type]

    def remove_tree(self, path: str) -> None:
        self.live("remove", path)
        if path not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

        def drop(names: dict[str, Inode | None]) -> None:
            for name in under(names, path):
                del names[name]

        self._disk.change(parent(path), drop)

    def fsync_dir(self, path: str) -> None:
        self.live("sync", path)
        self._disk.sync_names(path)

    def read_bytes(self, path: str) -> bytes:
        self.live("read", path)
        return bytes(self._existing(path).content)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.live("append", path)
        inode = Inode(content=bytearray(data), in_one_sector=len(data) <= _SECTOR_BYTES)
        if sync:
            inode.sync()
        if parent(path) not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self._disk.change(parent(path), lambda names: names.update({path: inode}))
        if sync:
            self._disk.sync_names(parent(path))

    def usage(self, path: str) -> tuple[int, int]:  # noqa: ARG002 - there is one file system
        return _CAPACITY_BYTES, _CAPACITY_BYTES // 2

    def lock(self, path: str, text: str) -> Lock:
        self.live("append", path)
        held = self._disk.locks.get(path)
        if held is not None:
            raise Locked(path, held[1])
        self._disk.locks[path] = self, text
        return _SimLock(self._disk, path, self)

    def boot_id(self) -> str:
        return f"boot-{self._disk.boot}"

    def _existing(self, path: str) -> Inode:
        inode = self._disk.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode
