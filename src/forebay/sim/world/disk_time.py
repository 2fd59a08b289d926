"""The time that a process spends on its disk: on its loop, or in the thread that reads.

The files of a story are small and stand for large ones: a byte here costs what thousands cost in life. A loop
may read a bounded part of one file in one turn for free (a few headers, found by the index); a scan of a
whole segment on the loop is charged in full. Giving bytes to the page cache, and from there to a socket,
costs nothing worth counting. Reads before a broker serves are free: no client waits for its loop, and a start
may check every byte.
"""

from __future__ import annotations

from collections.abc import Callable

from forebay.sim.world.disks.disk_handle import UseOfTime
from forebay.sim.world.loop import ProcessLoop

_BLOCK_BYTES = 1024
_BLOCK_S = 0.2
"""Reading batches was measured at 70 MB/s; a block here stands for 14 MB."""
_BOUNDED_BLOCKS = 32
"""Four reads of 8 KiB, as headers are read; those of several requests in one turn count together."""
_SYNC_S = 0.02


class DiskTime(UseOfTime):
    def __init__(self, loop: ProcessLoop, *, serves: Callable[[], bool] = lambda: True) -> None:
        """`serves`: True if the process has finished its start."""
        self._loop = loop
        self._serves = serves
        self._turn = -1
        self._blocks: dict[str, set[int]] = {}
        """By path: which blocks the loop has read in this turn."""

    def read(self, path: str, position: int, size: int) -> None:
        if not (self._loop.busy and self._serves()):
            return
        if self._turn != self._loop.turns_count:
            self._turn = self._loop.turns_count
            self._blocks.clear()
        blocks = self._blocks.setdefault(path, set())
        before = max(len(blocks), _BOUNDED_BLOCKS)
        blocks.update(range(position // _BLOCK_BYTES, (position + size) // _BLOCK_BYTES + 1))
        self._loop.spend(max(len(blocks) - before, 0) * _BLOCK_S)

    def sync(self) -> None:
        if self._loop.busy:
            self._loop.spend(_SYNC_S)
