"""A directory as an object store: one file per object. For tests, for one machine, and for shared mounts.

Files are written under a temporary name, synced and renamed. A process that ends meanwhile leaves the
temporary file: it goes when the object is deleted, or the last one beside it. Conditional writes hold an
exclusive lock on the file `.lock` of the root (`flock`), which works between processes, and on network file
systems that support it. The tag of an object is a hash of its bytes: manifests differ in each version.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import FileIO
from pathlib import Path

from forebay.tiers.object_store import ABSENT, Conflict, Listed, Missing, ObjectStoreError, Stored

_TEMPORARY = ".part"


class LocalDirectory:
    def __init__(self, root: str) -> None:
        self._root = Path(root).absolute()

    @property
    def url(self) -> str:
        return str(self._root)

    def get(self, key: str) -> Stored:
        with _failures("read", key):
            data = self._path(key).read_bytes()
        return Stored(data, _tag(data))

    def get_range(self, key: str, position: int, length: int) -> bytes:
        with _failures("read", key), self._path(key).open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), length, position)
            while len(data) < length:
                more = os.pread(file.fileno(), length - len(data), position + len(data))
                if not more:
                    raise ObjectStoreError(f"{key} is too short: {position + length} bytes were expected")
                data += more
        return data

    def put(self, key: str, data: bytes, *, replaces: str | None = None) -> str:
        with _failures("write", key):
            if replaces is None:
                self._write(key, [data])
            else:
                with self._locked():
                    self._check(key, replaces)
                    self._write(key, [data])
        return _tag(data)

    def upload(self, key: str, parts: Iterable[bytes]) -> None:
        with _failures("write", key):
            self._write(key, parts)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with _failures("delete", key):
            try:
                path.unlink()
            except FileNotFoundError:
                _remove_unfinished(path)
            for parent in path.parents:
                if parent == self._root or self._root not in parent.parents or not _remove_empty(parent):
                    break

    def list(self, prefix: str) -> Iterator[Listed]:
        start = self._root / prefix.rpartition("/")[0]
        for folder, _, names in os.walk(start):
            for name in sorted(names):
                path = Path(folder) / name
                key = path.relative_to(self._root).as_posix()
                if key.startswith(prefix) and name != ".lock" and _TEMPORARY not in name:
                    with suppress(FileNotFoundError):
                        stat = path.stat()
                        yield Listed(key, stat.st_size, int(stat.st_mtime * 1000))

    def _path(self, key: str) -> Path:
        assert ".." not in key.split("/") and not key.startswith("/"), key
        return self._root / key

    def _check(self, key: str, replaces: str) -> None:
        try:
            found = _tag(self._path(key).read_bytes())
        except FileNotFoundError:
            found = ABSENT
        if found != replaces:
            raise Conflict(f"{key} was changed by somebody else")

    def _write(self, key: str, parts: Iterable[bytes]) -> None:
        path = self._path(key)
        temporary = path.with_name(f"{path.name}{_TEMPORARY}{os.getpid()}-{os.urandom(4).hex()}")
        try:
            file = _create(temporary)
            with file:
                for part in parts:
                    _write_all(file, part)
                os.fsync(file.fileno())
            temporary.rename(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        _sync_directory(path.parent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / ".lock").open("ab") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield


def _remove_unfinished(path: Path) -> None:
    """What is left of an upload that ended before the object was there."""
    with suppress(FileNotFoundError):
        for entry in path.parent.iterdir():
            if entry.name.startswith(f"{path.name}{_TEMPORARY}"):
                entry.unlink(missing_ok=True)


def _remove_empty(folder: Path) -> bool:
    """Remove a folder in which there is nothing but temporary files. False if there is more."""
    try:
        with os.scandir(folder) as entries:
            if any(_TEMPORARY not in entry.name for entry in entries):
                return False
        for path in folder.iterdir():
            if _TEMPORARY in path.name:
                path.unlink(missing_ok=True)
        folder.rmdir()
    except OSError:
        return False  # somebody else writes there, or has removed it
    return True


def _create(path: Path) -> FileIO:
    for _ in range(8):  # the directory may be removed in between, with the last object in it
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return FileIO(path, "xb")
    raise FileNotFoundError(str(path))


def _write_all(file: FileIO, part: bytes) -> None:
    """A disk that runs full takes a part of what it is given, and says so with the next write."""
    rest = memoryview(part)
    while rest:
        rest = rest[file.write(rest) :]


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _tag(data: bytes) -> str:
    return sha256(data).hexdigest()


@contextmanager
def _failures(verb: str, key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise Missing(f"there is no object {key}") from error
    except OSError as error:
        raise ObjectStoreError(f"cannot {verb} {key}: {error}") from error
