"""Reads that would wait for the device, kept off the event loop.

Sending a range that is not in the page cache stalls the loop for as long as the device takes. So a slice is
probed first, and what is cold is loaded by a small pool of threads, which also check the CRC of bytes that
this process has not written itself; then it is sent like any other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import KafkaError, StorageError
from forebay.storage.log.files import LogFiles
from forebay.storage.log.segment.segment_list import LogSlice

log = logging.getLogger(__name__)

T = TypeVar("T")

Outcomes = list[KafkaError | None]
"""The error of each slice, or None, in their order."""


class ColdReads:
    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics, pool: Executor) -> None:
        self._loop = loop
        self._metrics = metrics
        self._pool = pool

    def load(self, slices: Sequence[tuple[LogFiles, LogSlice]], done: Callable[[Outcomes], None]) -> None:
        """Make slices ready to be sent, then call `done` on the loop, with what went wrong with each."""
        self._metrics.cold_reads += len(slices)
        self._pool.submit(self._load, slices, done)

    def _load(self, slices: Sequence[tuple[LogFiles, LogSlice]], done: Callable[[Outcomes], None]) -> None:
        """Runs in a thread."""
        outcomes = [_warm(files, found) for files, found in slices]
        self._loop.call_soon_threadsafe(done, outcomes)

    def run(self, work: Callable[[], T], done: Callable[[T | KafkaError], None]) -> None:
        """Have a thread do what may wait for the device, then call `done` on the loop with its result."""
        self._metrics.cold_reads += 1
        self._pool.submit(self._run, work, done)

    def _run(self, work: Callable[[], T], done: Callable[[T | KafkaError], None]) -> None:
        """Runs in a thread."""
        result: T | KafkaError
        try:
            result = work()
        except KafkaError as error:
            result = error
        except Exception as error:
            log.exception("a log could not be read")
            result = StorageError(f"a log could not be read: {error}")
        self._loop.call_soon_threadsafe(done, result)

    def close(self) -> None:
        self._pool.shutdown(wait=True)


def _warm(files: LogFiles, found: LogSlice) -> KafkaError | None:
    try:
        files.warm(found)
    except KafkaError as error:
        return error
    except Exception as error:
        log.exception("a range could not be read")
        return StorageError(f"a range could not be read: {error}")
    return None
