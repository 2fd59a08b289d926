"""The disk as one process uses it: its files, until it dies in the middle of a change or is killed."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence

from forebay.sim.world.disks.disk import Inode, SimDisk, parent, under
from forebay.storage.disk import Buffer, File, FileClosed, Lock, Locked

_CAPACITY_BYTES = 1 << 30
_SECTOR_BYTES = 512
_COLD_CHANCE = 0.02
_COLD_CHANCE_WHEN_SLOW = 0.5


class Died(BaseException):
    """The process ended in the middle of an operation; no code may handle this as an error."""


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
        self._changing("append").content += b"".join(views)

    def pread(self, length: int, position: int) -> bytes:
        found = self.pass_on(length, position)
        self._disk.time.read(self._path, position, len(found))
        return found

    def pass_on(self, length: int, position: int) -> bytes:
        """Bytes that the system passes to a socket; the process does not read them."""
        self._check()
        self._disk.live("read", self._path, position)
        return b"" if self._inode is None else bytes(self._inode.content[position : position + length])

    def cached(self, position: int, length: int) -> bool:  # noqa: ARG002 - everything is in memory
        return self._disk.is_cached()

    def datasync(self) -> None:
        inode = self._changing("sync")
        self._disk.time.sync()
        inode.sync()

    def truncate(self, size: int) -> None:
        self._changing("truncate").truncate(size)

    def rename(self, path: str) -> None:
        if self._inode is not None:
            self._disk.rename(self._path, path)
        self._path = path

    def close(self) -> None:
        self._closed = True

    def _changing(self, operation: str) -> Inode:
        """The inode to change. A file that does not exist yet is created."""
        self._check()
        self._disk.live(operation, self._path)
        if self._inode is None:
            self._inode = self._disk.make(self._path)
        return self._inode

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


class UseOfTime:
    """Notified of the process's use of its disk. This one takes no time."""

    def read(self, path: str, position: int, size: int) -> None: ...
    def sync(self) -> None: ...


class DiskHandle:
    """The disk as one process sees it: the port that a broker is given."""

    def __init__(self, disk: SimDisk, chance: random.Random, time: UseOfTime | None = None) -> None:
        self.time = time or UseOfTime()
        self._disk = disk
        self._chance = chance
        self.dead = False
        self.lives: int | None = None
        """How many more changes the process makes before it dies in the next; None for any number."""
        self.on_death: Callable[[], None] = lambda: None

    # -- the process's end -------------------------------------------------------------------------------

    def die(self) -> None:
        """After this, a dead process leaves no mark, whatever it tries."""
        self.dead = True
        for path in [path for path, (holder, _) in self._disk.locks.items() if holder is self]:
            del self._disk.locks[path]

    def live(self, operation: str, path: str, position: int = 0) -> None:
        if self.dead:
            raise Died
        if self.lives is not None and operation != "read":
            self.lives -= 1
            if self.lives < 0:
                self.dead = True
                self.on_death()
                raise Died
        if self._disk.fault is not None:
            try:
                self._disk.fault(operation, path)
            except OSError:
                self._disk.refused[operation, path, position] += 1
                raise

    # -- what files use ----------------------------------------------------------------------------------

    def find(self, path: str) -> Inode | None:
        return self._disk.names.get(path)

    def make(self, path: str) -> Inode:
        self._check_there(parent(path))
        inode = Inode()
        self._disk.change(parent(path), lambda names: names.update({path: inode}))
        return inode

    def is_cached(self) -> bool:
        return self._chance.random() >= (_COLD_CHANCE_WHEN_SLOW if self._disk.slow_s else _COLD_CHANCE)

    # -- the port ----------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> File:
        if create:
            self.live("create", path)
            self.make(path)
        assert not absent or path not in self._disk.names, f"{path} is there"
        return SimFile(self, path)

    def list(self, path: str) -> list[str]:
        self.live("read", path)
        self._check_there(path)
        start = path + "/"
        return sorted(
            name[len(start) :]
            for name in self._disk.names
            if name.startswith(start) and "/" not in name[len(start) :]
        )

    def mkdirs(self, path: str) -> bool:
        self.live("mkdir", path)
        if not path or path in self._disk.names:
            return False
        if parent(path):
            self.mkdirs(parent(path))
        self._disk.change(parent(path), lambda names: names.setdefault(path, None))  # type: ignore[arg-type]
        if not parent(path):
            self._disk.sync_names("")  # what hangs at the root was there before us
        return True

    def exists(self, path: str) -> bool:
        return path in self._disk.names

    def size(self, path: str) -> int:
        return len(self._existing(path).content)

    def rename(self, path: str, new_path: str) -> None:
        self.live("rename", path)
        self._check_there(path)

        def move(names: dict[str, Inode | None]) -> None:
            names.pop(new_path, None)
            if path in names:
                names[new_path] = names.pop(path)

        def move_tree(names: dict[str, Inode | None]) -> None:
            for name in under(names, new_path):
                del names[name]
            for name in under(names, path):
                names[new_path + name[len(path) :]] = names.pop(name)

        is_file = self._disk.names[path] is not None
        if not is_file:
            self._disk.on_directory_renamed(path, new_path)
            # The names in it go with it: they must not turn up in a new directory of its old name.
            self._disk.sync_names(path)
        self._disk.change(parent(path), move if is_file else move_tree)

    def remove(self, path: str) -> None:
        self.live("remove", path)
        if path in self._disk.names:
            self._disk.change(parent(path), lambda names: names.pop(path, None))  # type: ignore[arg-type]

    def remove_tree(self, path: str) -> None:
        self.live("remove", path)
        self._check_there(path)

        def drop(names: dict[str, Inode | None]) -> None:
            for name in under(names, path):
                del names[name]

        self._disk.change(parent(path), drop)

    def fsync_dir(self, path: str) -> None:
        self.live("sync", path)
        self.time.sync()
        self._disk.sync_names(path)

    def read_bytes(self, path: str) -> bytes:
        self.live("read", path)
        return bytes(self._existing(path).content)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        self.live("append", path)
        if sync:
            self.time.sync()
        inode = Inode(content=bytearray(data), in_one_sector=len(data) <= _SECTOR_BYTES)
        if sync:
            inode.sync()
        self._check_there(parent(path))
        self._disk.change(parent(path), lambda names: names.update({path: inode}))
        if sync and sync_name:
            self._disk.sync_names(parent(path))

    def write_new(self, path: str, data: bytes) -> None:
        self.live("create", path)
        inode = self.make(path)
        inode.in_one_sector = len(data) <= _SECTOR_BYTES
        self.live("append", path)
        inode.content += data

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

    def _check_there(self, path: str) -> None:
        if path not in self._disk.names:
            raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)

    def _existing(self, path: str) -> Inode:
        inode = self._disk.names.get(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode
