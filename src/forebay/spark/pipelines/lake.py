"""A directory that outlives topics: on a disk, or behind a URI that pyarrow knows (s3, gs, abfss, hdfs).

A file appears whole or not at all. On a disk that takes a name of its own first, a sync, and a rename. An
object store shows an object only once it is complete, but pyarrow completes an object that is given up: its
streams can only be closed. So a file for an object store is written to a local one, and sent when it is
whole. Nothing is ever deleted under the name that a file shall have: another attempt may have put it there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import posixpath
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import fs

from forebay.errors import ForebayError
from forebay.lazy import dataclass

OWN = "_forebay"
"""The folder of what is no data; readers of Parquet pass over names that begin with an underscore."""
_SCRATCH = f"{OWN}/scratch"
_REMOVED = ".removed"
_SCRATCH_NS_MAX = 24 * 3600 * 10**9
_OBJECT_STORES = ("s3", "gcs", "abfs")
_MOVES_AT_ONCE = 16
"""An object store copies and deletes for a rename, which is two answers to wait for."""
_SENT_BYTES = 8 << 20


class LakeError(ForebayError):
    """An archive cannot be read or written as it is; the message says what to do."""


@dataclass(frozen=True, slots=True)
class File:
    path: str
    """Below the lake's own directory."""
    size: int


class Lock:
    """Held until it is released, or until the process ends."""

    def __init__(self, file: IO[Any] | None) -> None:
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.release()


class Lake:
    """Paths are relative to its root. Cheap to make, so that every task makes its own."""

    def __init__(self, location: str, opened: tuple[fs.FileSystem, str] | None = None) -> None:
        """`opened`: the file system and the path in it, where pyarrow shall not open them by the location."""
        self.location = absolute(location)
        self._files, self._root = opened or _opened(self.location)

    @property
    def is_local(self) -> bool:
        return isinstance(self._files, fs.LocalFileSystem)

    def path(self, *parts: str) -> str:
        """As pyarrow's file system of this lake wants it."""
        return "/".join([self._root.rstrip("/"), *parts])

    def uri(self, path: str) -> str:
        """As other programs want it: a plain path on a disk."""
        return "/".join([self.location.rstrip("/"), path])

    @property
    def files(self) -> fs.FileSystem:
        return self._files

    # -- files ---------------------------------------------------------------------------------------

    def list(self, folder: str = "") -> list[File]:
        """Every file below a folder, ours and those under way left out; sorted by path."""
        selector = fs.FileSelector(self.path(folder) if folder else self._root, True, True)
        below = len(self._root.rstrip("/")) + 1
        found = [
            File(entry.path[below:], entry.size)
            for entry in self._files.get_file_info(selector)
            if entry.type == fs.FileType.File
        ]
        return sorted((file for file in found if _is_visible(file.path, folder)), key=lambda file: file.path)

    def exists(self, path: str) -> bool:
        return bool(self._files.get_file_info(self.path(path)).type != fs.FileType.NotFound)

    def read(self, path: str) -> bytes | None:
        try:
            with self._files.open_input_stream(self.path(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, content: bytes) -> None:
        with self.create(path) as stream:
            stream.write(content)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[pa.NativeFile]:
        """A file that appears under its name, whole, when the block ends well."""
        if self._files.type_name in _OBJECT_STORES:
            with self._sent_whole(path) as stream:
                yield stream
            return
        scratch = path if path.startswith(f"{_SCRATCH}/") else self.scratch_path()
        self._make_folder(scratch)
        stream = self._files.open_output_stream(self.path(scratch))
        try:
            yield stream
            stream.close()
        except BaseException:
            self._abandon(stream, scratch)
            raise
        self._sync(scratch)
        if scratch != path:
            self.move(scratch, path)

    def scratch_path(self) -> str:
        """A path that nobody else uses, for a file that is moved later, or is left behind for a day."""
        return f"{_SCRATCH}/{uuid.uuid4().hex}"

    def move(self, source: str, target: str) -> None:
        """Rename, in the place of what is there."""
        self.move_all([(source, target)])

    def move_all(self, moves: Iterable[tuple[str, str]]) -> None:
        """Rename files, each in the place of what is there. On a disk the new names outlast a power cut."""
        wanted = list(moves)
        for target in {posixpath.dirname(target): target for _, target in wanted}.values():
            self._make_folder(target)
        if len(wanted) > 1 and not self.is_local:
            with ThreadPoolExecutor(_MOVES_AT_ONCE) as threads:
                list(threads.map(self._rename, wanted))
        else:
            for each in wanted:
                self._rename(each)
        self._sync_folders(target for _, target in wanted)

    def delete(self, path: str) -> None:
        """Does nothing if there is no such file."""
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_file(self.path(path))

    def clear_scratch(self) -> None:
        """Remove the files of killed writers: no writer needs a day for a file."""
        selector = fs.FileSelector(self.path(_SCRATCH), allow_not_found=True)
        too_old_ns = time.time_ns() - _SCRATCH_NS_MAX
        for entry in self._files.get_file_info(selector):
            if entry.type == fs.FileType.File and (entry.mtime_ns or 0) < too_old_ns:
                self._files.delete_file(entry.path)

    def remove(self) -> None:
        """The whole directory. It is renamed first, where that is possible, so that no part of it is left."""
        doomed = self._root
        if self._files.type_name not in _OBJECT_STORES:
            doomed = f"{self._root.rstrip('/')}{_REMOVED}"
            with contextlib.suppress(FileNotFoundError):
                self._files.delete_dir(doomed)  # of a process that was killed here
            try:
                self._files.move(self._root, doomed)
            except OSError:
                doomed = self._root  # there is none, or it cannot be renamed, as the root of a disk
        with contextlib.suppress(FileNotFoundError):
            self._files.delete_dir(doomed)

    def lock(self, name: str, *, shared: bool = False) -> Lock:
        """An exclusive or a shared lock. Only on a disk: object stores have no locks."""
        if not self.is_local:
            return Lock(None)
        path = Path(self.path(OWN, f"{name}.lock"))
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a")
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise LakeError(
                f"{self.location} is in use by another process ({name}): wait for it, or stop it"
            ) from None
        return Lock(file)

    # -- internals -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _sent_whole(self, path: str) -> Iterator[pa.NativeFile]:
        folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
        roomy = folder if folder and Path(folder).is_dir() else None
        with tempfile.NamedTemporaryFile(prefix="forebay-", dir=roomy) as local:
            with pa.OSFile(local.name, "wb") as stream:
                yield stream
            with pa.OSFile(local.name, "rb") as whole:
                target = self._files.open_output_stream(self.path(path))
                while piece := whole.read(_SENT_BYTES):
                    target.write(piece)
                target.close()

    def _rename(self, move: tuple[str, str]) -> None:
        source, target = move
        self._files.move(self.path(source), self.path(target))

    def _make_folder(self, path: str) -> None:
        if self._files.type_name not in _OBJECT_STORES:
            self._files.create_dir(self.path(path).rpartition("/")[0], recursive=True)

    def _sync(self, path: str) -> None:
        if self.is_local:
            descriptor = os.open(self.path(path), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _sync_folders(self, paths: Iterable[str]) -> None:
        """A new name is in its folder, and the name of a new folder in the one above it."""
        if self.is_local:
            for folder in sorted({folder for path in paths for folder in _folders(path)}, reverse=True):
                self._sync(folder)

    def _abandon(self, stream: pa.NativeFile, path: str) -> None:
        with contextlib.suppress(OSError):
            stream.close()
        self.delete(path)


def _folders(path: str) -> Iterator[str]:
    """Those that a path leads through, the lake's own ("") included."""
    while path:
        path = posixpath.dirname(path)
        yield path


def absolute(location: str) -> str:
    return location if "://" in location else str(Path(location).absolute())


def _opened(location: str) -> tuple[fs.FileSystem, str]:
    if "://" not in location:
        return fs.LocalFileSystem(), location
    try:
        files, root = fs.FileSystem.from_uri(location)
    except (pa.ArrowInvalid, OSError) as error:
        raise LakeError(f"{location} cannot be opened: {error}") from None
    return files, root


def _is_visible(path: str, folder: str) -> bool:
    below = path[len(folder) :] if folder else path
    return not any(part.startswith(("_", ".")) for part in below.split("/"))
