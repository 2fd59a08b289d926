"""A disk on which the process dies: after so many changes nothing happens any more, not even cleaning up.

What had been done by then is there for whoever opens the directory next, and with `crash` (see
support.faults.faulty_disk) only what had been synced.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay.storage.disk import Buffer
from support.faults.faulty_disk import FaultyDisk, FaultyFile


class Died(BaseException):
    """No handler may take this for an error that it can deal with."""


class MortalFile(FaultyFile):
    __slots__ = ("_mortal",)

    def __init__(self, disk: MortalDisk, path: str) -> None:
        super().__init__(disk, path)
        self._mortal = disk

    def appendv(self, views: Sequence[Buffer]) -> None:
        self._mortal.live()
        super().appendv(views)

    def truncate(self, size: int) -> None:
        self._mortal.live()
        super().truncate(size)

    def rename(self, path: str) -> None:
        self._mortal.live()
        super().rename(path)

    def datasync(self) -> None:
        self._mortal.live()
        super().datasync()


class MortalDisk(FaultyDisk):
    lives: int | None = None
    """How many changes are still made; None for any number."""

    def live(self) -> None:
        if self.lives is not None:
            if self.lives == 0:
                raise Died
            self.lives -= 1

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> MortalFile:
        if create:
            self.live()
            super().open(path, create=True)
        return MortalFile(self, path)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.live()
            super().remove(path)

    def rename(self, path: str, new_path: str) -> None:
        self.live()
        super().rename(path, new_path)
        self.synced[new_path] = self.synced.pop(path, 0)

    def fsync_dir(self, path: str) -> None:
        self.live()
        super().fsync_dir(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        self.live()
        super().write_atomic(path, data, sync=sync, sync_name=sync_name)

    def write_new(self, path: str, data: bytes) -> None:
        self.open(path, create=True)
        self.live()
        super().write_new(path, data)
