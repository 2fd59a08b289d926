"""The seam to the disk: everything that storage does to files goes through `Disk` and `File`.

Three promises are made here, and the log is built on them.

- **An append is complete or has no effect.** A short or failed write is cut off again before the error is
  raised.
- **Descriptors are bounded.** A `File` is a name that opens when it is used; beyond a limit one that was not
  used recently is closed, and opens again when it is needed. Thousands of segments need not fit `ulimit -n`.
- **A closed `File` never opens again**: it raises `FileClosed`.

Calls that may wait for the device: `datasync`, `fsync_dir`, `write_atomic`, `remove`, `remove_tree`, and
`pread` of bytes that are not in the page cache (see `cached`).

`real_disk.py` has the disk of the operating system, `sim/world/` that of the simulator.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class FileClosed(OSError):
    """The file was closed or deleted while it was still in use."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EBADF, "the file has been closed", path)


class Locked(OSError):
    """Another process holds the lock; `holder` is what it wrote into the lock file."""

    def __init__(self, path: str, holder: str) -> None:
        super().__init__(errno.EWOULDBLOCK, "the lock is held by another process", path)
        self.holder = holder


class File(Protocol):
    """A file that grows at its end. One that does not exist yet is empty, and created by the first write."""

    @property
    def path(self) -> str: ...

    def fileno(self) -> int:
        """The descriptor, for use at once and only by the owner's thread."""

    def size(self) -> int: ...

    def appendv(self, views: Sequence[Buffer]) -> None:
        """Write all of them at the end, or raise OSError and leave the file as it was."""

    def pread(self, length: int, position: int) -> bytes:
        """Up to `length` bytes: fewer only at the end of the file."""

    def cached(self, position: int, length: int) -> bool:
        """True if reading this range probably does not wait for the device."""

    def datasync(self) -> None:
        """Make everything appended survive a power failure. Any thread, while the owner appends."""

    def truncate(self, size: int) -> None: ...

    def rename(self, path: str) -> None: ...

    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False, absent: bool = False) -> File:
        """The file of that name; with `create` it exists afterwards and is empty. `absent`: the caller knows
        that there is none."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def mkdirs(self, path: str) -> bool:
        """Make a directory, and those above it; False if it was there."""

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def rename(self, path: str, new_path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is no error."""

    def remove_tree(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        """Replace a file: readers see the old bytes or the new. `sync`: also after a power failure; unless
        `sync_name`, from the next `fsync_dir` of its directory on."""

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file that is not there, unsynced. The process may end before there is anything in it."""

    def usage(self, path: str) -> tuple[int, int]:
        """(all, free) bytes of the file system that a path is on."""

    def lock(self, path: str, text: str) -> Lock:
        """Hold an exclusive lock until released or the process ends; `text` names the holder."""

    def boot_id(self) -> str:
        """Changes exactly when unsynced writes may have been lost; "" if unknown."""
