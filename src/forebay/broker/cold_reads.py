"""Reads that would wait for the device, kept off the event loop.

Sending a range that is not in the page cache stalls the loop for as long as the device takes. So a range is
probed first, and what is missing is read by a small pool of threads, only to bring it into the cache; then it is
sent like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from forebay.broker.metrics import Metrics
from forebay.wire.parts import FileRange

_THREADS = 2
_STEP_BYTES = 1024 * 1024


class ColdReads:
    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="forebay-read")

    def missing(self, ranges: Iterable[FileRange]) -> list[FileRange]:
        """The ranges that are not in the page cache."""
        return [r for r in ranges if not r.file.cached(r.position, r.length)]

    def load(self, ranges: list[FileRange], done: Callable[[], None]) -> None:
        """Bring ranges into the page cache, then call `done` on the loop."""
        self._metrics.cold_reads += len(ranges)
        self._pool.submit(self._load, ranges, done)

    def _load(self, ranges: list[FileRange], done: Callable[[], None]) -> None:
        """Runs in a thread."""
        try:
            for part in ranges:
                for start in range(part.position, part.position + part.length, _STEP_BYTES):
                    part.file.pread(min(_STEP_BYTES, part.position + part.length - start), start)
        except OSError:
            pass  # the sender meets the same error, and knows what to do about it
        self._loop.call_soon_threadsafe(done)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
