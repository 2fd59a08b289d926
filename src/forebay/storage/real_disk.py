"""The disk of the operating system.

A descriptor never means another file. One thread, the owner, opens, evicts and closes the shared descriptors,
so the result of `fileno()` stays valid until it lets go. Any other thread borrows the shared descriptor for
the duration of one call, and the owner closes it only after that; if there is none, the thread opens its own.
When another thread closes a `File`, the owner closes the shared descriptor before it opens its next.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident

from forebay.lazy import load
from forebay.storage import system_calls
from forebay.storage.disk import Buffer, FileClosed, Lock, Locked
from forebay.storage.system_calls import is_cached, sync_data, sync_directory, sync_file, write_vector

_IOV_MAX = 1024
_READ_BYTES = 1 << 16


class RealFile:
    """A file of the operating system; created by `RealDisk.open`."""

    __slots__ = ("_closed", "_disk", "_exists", "_fd", "_given_up", "_size", "_users", "path", "recent")

    def __init__(self, disk: RealDisk, path: str, *, exists: bool | None = None) -> None:
        """`exists`: whether an empty file is there; None if that is to be looked up."""
        self._disk = disk
        self.path = path
        self._fd = -1
        self._users = 0
        """Threads that use the shared descriptor at this moment, or one that was given up meanwhile."""
        self._given_up: tuple[int, ...] = ()
        self._closed = False
        self.recent = False
        if exists is not None:
            self._size, self._exists = 0, exists
            return
        try:
            self._size = os.stat(path).st_size  # noqa: PTH116 - strings all the way, this runs per segment
            self._exists = True
        except FileNotFoundError:
            self._size = 0
            self._exists = False

    def fileno(self) -> int:
        self.recent = True
        fd = self._fd
        return fd if fd >= 0 else self._open_shared()

    def size(self) -> int:
        return self._size

    def appendv(self, views: Sequence[Buffer]) -> None:
        if get_ident() == self._disk.owner:
            self._append(self.fileno(), views)
        else:
            with self._borrowed() as fd:
                self._append(fd, views)

    def _append(self, fd: int, views: Sequence[Buffer]) -> None:
        start = self._size
        total = sum(map(len, views))
        try:
            if len(views) == 1:
                written = os.pwrite(fd, views[0], start)
            else:
                written = _write_vectors(fd, views, start)
            if written != total:
                _write_rest(fd, b"".join(views)[written:], start + written)
        except OSError:
            self._cut(fd, start)
            raise
        self._size = start + total

    def pread(self, length: int, position: int) -> bytes:
        if not self._exists and not self._closed:
            return b""
        if get_ident() == self._disk.owner:
            return os.pread(self.fileno(), length, position)
        with self._borrowed() as fd:
            return os.pread(fd, length, position)

    def cached(self, position: int, length: int) -> bool:
        return is_cached(self.fileno(), position, length)

    def datasync(self) -> None:
        if self._disk.syncing:
            with self._borrowed() as fd:
                sync_data(fd)

    def truncate(self, size: int) -> None:
        with self._borrowed() as fd:
            os.ftruncate(fd, size)
        self._size = size

    def rename(self, path: str) -> None:
        with self._disk.lock_fds:
            if self._exists:
                os.rename(self.path, path)  # noqa: PTH104
            self.path = path

    def close(self) -> None:
        self._closed = True
        self.evict()

    def evict(self) -> None:
        """Give the shared descriptor back."""
        with self._disk.lock_fds:
            fd = self.let_go()
            if fd >= 0 and get_ident() != self._disk.owner:
                self._disk.left_open.append(fd)  # the owner may be about to use it
                return
        if fd >= 0:
            os.close(fd)

    def let_go(self) -> int:
        """Forget the shared descriptor, which the caller then closes. Under the lock.

        -1: there is none, or threads use it, of which the last sees to it.
        """
        fd, self._fd = self._fd, -1
        self._disk.opened.pop(self, None)
        if self._users and fd >= 0:
            self._given_up = (*self._given_up, fd)
            return -1
        return fd

    def _open_shared(self) -> int:
        disk = self._disk
        if get_ident() != disk.owner:
            raise RuntimeError(f"{self.path}: only the thread that owns the disk may use its descriptors")
        disk.make_room()
        fd = self._open()
        with disk.lock_fds:
            self._fd = fd
            disk.opened[self] = None
        self.recent = False  # one use earns nothing: a pass over many files must not push out the busy ones
        return fd

    @contextmanager
    def _borrowed(self) -> Iterator[int]:
        """A descriptor for the calling thread: the shared one, which stays open meanwhile, or its own."""
        disk = self._disk
        with disk.lock_fds:
            fd = self._fd
            is_shared = fd >= 0
            if is_shared:
                self._users += 1
            else:
                fd = self._open()
        try:
            yield fd
        finally:
            for unused in self._give_back() if is_shared else (fd,):
                os.close(unused)

    def _give_back(self) -> tuple[int, ...]:
        """The calling thread has used the shared descriptor; returns those that it has to close."""
        with self._disk.lock_fds:
            self._users -= 1
            if self._users or not self._given_up:
                return ()
            given_up, self._given_up = self._given_up, ()
            if self._closed:
                self._disk.left_open += (
                    given_up  # perhaps by another thread, while the owner is about to use it
                )
                return ()
            return given_up

    def _open(self) -> int:
        if self._closed:
            raise FileClosed(self.path)
        # Only the first opening may create: a name that has vanished since is an error, not an empty file.
        flags = os.O_RDWR | os.O_CLOEXEC | (0 if self._exists else os.O_CREAT)
        fd = os.open(self.path, flags, 0o644)
        self._exists = True
        return fd

    def _cut(self, fd: int, size: int) -> None:
        try:
            os.ftruncate(fd, size)
        except OSError:
            # The next append writes over the torn bytes, and recovery cuts them off if there is none.
            return


def _write_vectors(fd: int, views: Sequence[Buffer], position: int) -> int:
    """The number of bytes that were written before a short write."""
    written = 0
    for first in range(0, len(views), _IOV_MAX):
        vector = views[first : first + _IOV_MAX]
        expected = sum(map(len, vector))
        got = write_vector(fd, vector, position + written)
        written += got
        if got != expected:
            break
    return written


def _write_rest(fd: int, rest: bytes, position: int) -> None:
    """A short write means an error without a reason: continue until it is done or an errno comes."""
    while rest:
        written = os.pwrite(fd, rest, position)
        if written == 0:
            raise OSError(errno.EIO, "the device takes no more bytes")
        rest = rest[written:]
        position += written


class _FileLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    """The disk of the operating system. The thread that makes it owns it; `adopt` hands it to another."""

    def __init__(self, max_open_files: int = 512, *, syncs: bool = True) -> None:
        """Without `syncs` nothing is forced to disk, whoever asks for it."""
        if max_open_files < 1:
            raise ValueError("max_open_files must be at least 1")
        self.syncing = syncs
        self._max_open_files = max_open_files
        self.owner = get_ident()
        self.lock_fds = threading.Lock()
        self.opened: OrderedDict[RealFile, None] = OrderedDict()
        self.left_open: list[int] = []
        """Descriptors that the owner has yet to close: of files that other threads have closed, or used when
        they were evicted."""

    def adopt(self) -> None:
        """Make the calling thread the owner. No other thread may use the disk during the call."""
        self.owner = get_ident()

    def open_files(self) -> int:
        return len(self.opened) + len(self.left_open)

    def make_room(self) -> None:
        """Close files that were not used since the last look until one more file may open (second chance)."""
        opened = self.opened
        with self.lock_fds:
            closing, self.left_open = self.left_open, []
            while len(opened) >= self._max_open_files:
                oldest = next(iter(opened))
                if oldest.recent:
                    oldest.recent = False
                    opened.move_to_end(oldest)
                else:
                    closing.append(oldest.let_go())
        for fd in closing:
            if fd >= 0:
                os.close(fd)

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> RealFile:
        if create:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))
        return RealFile(self, path, exists=create if create or absent else None)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))  # noqa: PTH208

    def mkdirs(self, path: str) -> bool:
        try:
            os.mkdir(path)  # noqa: PTH102 - mostly this is enough
            return True
        except FileExistsError:
            if os.path.isdir(path):  # noqa: PTH112
                return False
            raise
        except OSError:
            Path(path).mkdir(parents=True, exist_ok=True)
            return True

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size  # noqa: PTH116

    def rename(self, path: str, new_path: str) -> None:
        os.rename(path, new_path)  # noqa: PTH104

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - this runs per segment, too

    def remove_tree(self, path: str) -> None:
        load("shutil:rmtree")(path)

    def fsync_dir(self, path: str) -> None:
        if self.syncing:
            sync_directory(path)

    def read_bytes(self, path: str) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks = [os.read(fd, _READ_BYTES)]
            while chunks[-1]:
                chunks.append(os.read(fd, _READ_BYTES))
        finally:
            os.close(fd)
        return b"".join(chunks)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        temporary = path + ".tmp"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            try:
                _write_rest(fd, data, 0)
                if sync and self.syncing:
                    sync_file(fd)
            finally:
                os.close(fd)
            os.replace(temporary, path)  # noqa: PTH105
        except OSError:
            self.remove(temporary)  # on a full disk it would take the last room, under a new name each time
            raise
        if sync and sync_name:
            self.fsync_dir(path.rpartition("/")[0])

    def write_new(self, path: str, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write_rest(fd, data, 0)
        finally:
            os.close(fd)

    def usage(self, path: str) -> tuple[int, int]:
        usage = load("shutil:disk_usage")(path)
        return usage.total, usage.free

    def lock(self, path: str, text: str) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, text.encode(), 0)
        except BlockingIOError:
            holder = os.pread(fd, 200, 0).decode(errors="replace").strip()
            os.close(fd)
            raise Locked(path, holder) from None
        except OSError:
            os.close(fd)
            raise
        return _FileLock(fd)

    def boot_id(self) -> str:
        return system_calls.boot_id()
