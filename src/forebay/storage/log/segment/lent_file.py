"""The file of a segment, lent to those who read ranges of it: it tells when nobody has a range any more.

A segment lends the same `LentFile` to all its readers, and forgets it when it is deleted. From then on it
lives as long as a response that is being sent, or a read in a thread, has a range of it.
"""

from __future__ import annotations

from weakref import ref

from forebay.storage.disk import File


class LentFile:
    __slots__ = ("__weakref__", "file")

    def __init__(self, file: File) -> None:
        self.file = file

    def fileno(self) -> int:
        return self.file.fileno()

    def pread(self, length: int, position: int) -> bytes:
        return self.file.pread(length, position)

    def cached(self, position: int, length: int) -> bool:
        return self.file.cached(position, length)


class Readers:
    """Those who read a segment that was deleted."""

    __slots__ = ("_lent",)

    def __init__(self, lent: LentFile | None) -> None:
        self._lent = None if lent is None else ref(lent)

    def __bool__(self) -> bool:
        return self._lent is not None and self._lent() is not None
