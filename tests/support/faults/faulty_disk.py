"""A disk that fails when it is told to, for tests: full, broken for some paths, or losing power.

It is the real disk with a switchboard before it. `crash` does what a loss of power may do: of the bytes
appended since a file's last `datasync` only some are left, and files whose directory was not synced may
be gone.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence

from forebay.storage.disk import Buffer
from forebay.storage.real_disk import RealDisk, RealFile


class FaultyFile(RealFile):
    __slots__ = ("_faults",)

    def __init__(self, disk: FaultyDisk, path: str) -> None:
        super().__init__(disk, path)
        self._faults = disk
        disk.synced.setdefault(path, self.size())

    def appendv(self, views: Sequence[Buffer]) -> None:
        self._faults.check("append", self.path)
        if self._faults.torn_bytes is not None and self.path.endswith(".log"):
            self._tear(b"".join(views), self._faults.torn_bytes)
        self._faults.spend(sum(map(len, views)), self.path)
        if not self._exists:
            self._faults.made(self.path)
        super().appendv(views)

    def _tear(self, data: bytes, size: int) -> None:
        """Leave a part of a write behind the end, as when it fails and cannot be taken back."""
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(fd, data[:size], self.size())
        finally:
            os.close(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)

    def pread(self, length: int, position: int) -> bytes:
        self._faults.check("pread", self.path)
        return super().pread(length, position)

    def datasync(self) -> None:
        self._faults.check("datasync", self.path)
        size = self.size()
        super().datasync()
        self._faults.synced[self.path] = size

    def truncate(self, size: int) -> None:
        self._faults.check("truncate", self.path)
        super().truncate(size)
        self._faults.synced[self.path] = min(self._faults.synced[self.path], size)

    def rename(self, path: str) -> None:
        self._faults.check("rename", self.path)
        synced = self._faults.synced
        synced[path] = synced.pop(self.path, 0)
        super().rename(path)


class FaultyDisk(RealDisk):
    def __init__(self, max_open_files: int = 512) -> None:
        super().__init__(max_open_files)
        self.synced: dict[str, int] = {}
        self.free: int | None = None
        """Bytes that may still be appended before the disk is full; None for no limit."""
        self.torn_bytes: int | None = None
        """While set, an append to a log fails, and leaves so many bytes behind the end of the file."""
        self._broken: list[tuple[str, str, int]] = []
        self._unsynced_names: set[str] = set()

    def break_path(self, operation: str, part_of_path: str, error: int = errno.EIO) -> None:
        """Let append, pread, datasync, truncate, rename, create or fsync_dir fail where the path has this."""
        self._broken.append((operation, part_of_path, error))

    def repair(self) -> None:
        self._broken.clear()
        self.free = self.torn_bytes = None

    def check(self, operation: str, path: str) -> None:
        for broken, part_of_path, error in self._broken:
            if broken == operation and part_of_path in path:
                raise OSError(error, os.strerror(error), path)

    def spend(self, size: int, path: str) -> None:
        if self.free is not None:
            if size > self.free:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self.free -= size

    def made(self, path: str) -> None:
        self._unsynced_names.add(path)
        self.synced[path] = 0

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> FaultyFile:
        if create:
            self.check("create", path)
            self.made(path)
            super().open(path, create=True)
        return FaultyFile(self, path)

    def remove(self, path: str) -> None:
        super().remove(path)
        self.synced.pop(path, None)

    def fsync_dir(self, path: str) -> None:
        self.check("fsync_dir", path)
        super().fsync_dir(path)
        self._unsynced_names = {name for name in self._unsynced_names if os.path.dirname(name) != path}  # noqa: PTH120

    def crash(self, keep: Callable[[int], int]) -> None:
        """Lose power: `keep` says how many of the unsynced bytes of a file are left, and (of 1) whether a new
        file's name is. The disk's files must not be used afterwards."""
        for file in list(self.opened):
            file.close()
        for path, synced in sorted(self.synced.items()):
            if path in self._unsynced_names and not keep(1):
                super().remove(path)
            elif self.exists(path):
                unsynced = max(self.size(path) - synced, 0)
                os.truncate(path, synced + keep(unsynced) if unsynced else self.size(path))
