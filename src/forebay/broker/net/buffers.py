"""Receive buffers: one shared by all connections, and a bounded pool for frames that do not fit into it.

An idle connection owns no buffer at all, so ten thousand of them cost next to nothing. A connection in
the middle of a large frame borrows a buffer that is at most about twice what it has really sent: announcing
a hundred megabytes and sending none of them costs the broker nothing.

Frames that are larger still get memory that is mapped for them. It takes room as it is filled, need not be
copied to grow, and goes back to the system at once; what was freed on the heap may stay for ever.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from mmap import mmap

Buffer: TypeAlias = "bytearray | mmap"

SHARED_BYTES = 128 * 1024
"""Holds five requests of 16 KB, as a producer has them in flight, so that they come in one read."""
_FIRST_BYTES = 32 * 1024
"""For a frame of which little has arrived: a thousand incomplete frames must not cost much memory."""
_KEEP_BYTES = 16 * 1024 * 1024
_MAPPED_FROM = 4 * 1024 * 1024
"""Larger than the requests of producers with the usual settings, for which used buffers are kept."""


class BufferPool:
    """Keeps a few used buffers, because fresh memory costs a page fault for every 4 KB touched."""

    def __init__(self, keep_bytes: int = _KEEP_BYTES) -> None:
        self.shared = bytearray(SHARED_BYTES)
        self.shared_view = memoryview(self.shared)
        self._keep_bytes = keep_bytes
        self._free: list[bytearray] = []  # from the smallest to the largest
        self._free_bytes = 0

    def least(self, wanted: int, present: int) -> int:
        """How much of a frame has to fit into what `take` gives. More is asked for when that is full."""
        if self._free and len(self._free[-1]) >= wanted:
            return wanted  # there is one that has room for all of it, and is not made anew
        return min(wanted, max(_FIRST_BYTES, 2 * present))

    def take(self, wanted: int, present: int = 0) -> Buffer:
        """A buffer for a frame of `wanted` bytes of which `present` have arrived.

        It may be smaller than wanted when nothing suitable is free: then it is at least twice as large
        as what is present, and the caller comes back when it is full.
        """
        if wanted > _MAPPED_FROM:
            return _mapped(wanted)
        free = self._free
        enough = self.least(wanted, present)
        i = bisect_left(free, wanted, key=len)
        if i == len(free) and i and len(free[-1]) >= enough:
            i -= 1
        if i == len(free):
            return bytearray(enough)
        buffer = free.pop(i)
        self._free_bytes -= len(buffer)
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Keep a buffer for later. When there are too many, the small go: the large cost most to make."""
        if not isinstance(buffer, bytearray) or len(buffer) > self._keep_bytes:
            return
        insort(self._free, buffer, key=len)
        self._free_bytes += len(buffer)
        while self._free_bytes > self._keep_bytes:
            self._free_bytes -= len(self._free.pop(0))


def _mapped(size: int) -> Buffer:
    import mmap  # few brokers ever need it

    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
