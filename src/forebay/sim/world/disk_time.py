"""What a process pays for the use of its disk: time, of its loop or of the thread that reads.

The files of a story are small and stand for large ones: a byte here costs what thousands cost in life. What a
loop may read in one turn of one file does not grow with the file (a few headers, found by the index), so that
much is free; whoever goes through a whole segment on the loop pays for all of it. Giving bytes to the page
cache, and from there to a socket, costs nothing worth counting.
"""

from __future__ import annotations

from forebay.sim.world.loop import ProcessLoop

_READ_S_PER_BYTE = 100e-6
"""Reading batches was measured at 70 MB/s; a byte here stands for 7,000."""
_BOUNDED_BYTES = 16 * 1024
_SYNC_S = 0.02


class DiskTime:
    def __init__(self, loop: ProcessLoop) -> None:
        self._loop = loop
        self._turn = -1
        self._read: dict[str, int] = {}
        """By path: what the loop has read in this turn."""

    def read(self, path: str, size: int) -> None:
        if not self._loop.busy:
            return
        if self._turn != self._loop.turns_count:
            self._turn = self._loop.turns_count
            self._read.clear()
        before = self._read.get(path, 0)
        after = self._read[path] = before + size
        self._loop.spend((max(after, _BOUNDED_BYTES) - max(before, _BOUNDED_BYTES)) * _READ_S_PER_BYTE)

    def sync(self) -> None:
        if self._loop.busy:
            self._loop.spend(_SYNC_S)
