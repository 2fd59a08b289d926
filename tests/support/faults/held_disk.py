"""A disk whose syncs, or whose cuts, can be held, for tests of what must wait for them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from forebay.storage.real_disk import RealDisk, RealFile

WAIT_SECONDS = 120.0


class HeldFile(RealFile):
    __slots__ = ("_held",)

    def __init__(self, disk: HeldDisk, path: str) -> None:
        super().__init__(disk, path)
        self._held = disk

    def datasync(self) -> None:
        self._held.syncs += 1
        self._held.began.set()
        assert self._held.released.wait(WAIT_SECONDS), "nobody released the disk"
        super().datasync()

    def truncate(self, size: int) -> None:
        self._held.cut_began.set()
        assert self._held.cuts_released.wait(WAIT_SECONDS), "nobody released the disk"
        super().truncate(size)


class HeldDisk(RealDisk):
    """A disk whose syncs do not return while it is held; `cuts_held` does the same to truncations."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = 0
        self.began = threading.Event()
        self.released = threading.Event()
        self.released.set()
        self.cut_began = threading.Event()
        self.cuts_released = threading.Event()
        self.cuts_released.set()

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> HeldFile:
        if create:
            super().open(path, create=True)
        return HeldFile(self, path)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self.began.clear()
        self.released.clear()
        try:
            yield
        finally:
            self.released.set()

    @contextlib.contextmanager
    def cuts_held(self) -> Iterator[None]:
        self.cut_began.clear()
        self.cuts_released.clear()
        try:
            yield
        finally:
            self.cuts_released.set()

    def wait_for_sync(self) -> bool:
        """Whether a sync has begun since the disk was held."""
        return self.began.wait(WAIT_SECONDS)
