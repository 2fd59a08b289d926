"""Offsets by time, looked for in threads while the loop serves others (`storage/log/timestamp_search.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from forebay.broker.yielding.pace import Pace, Stopped
from forebay.clock import Clock
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.disk import FileClosed
from forebay.storage.log.log import Log
from forebay.storage.log.timestamp_search import Search, TimestampOffset, Walk

_TRIES_MAX = 5


class OffsetsByTime:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, pool: Executor) -> None:
        self._loop = loop
        self._pool = pool
        self._clock = clock
        self._paces: set[Pace] = set()
        self._closed = False

    async def first_from(self, log: Log, timestamp: int) -> TimestampOffset | None:
        """(timestamp, offset) of the first record that is not older. Raises KafkaError."""
        return await self._search(log, lambda: log.search_timestamp(timestamp))

    async def first_message_from(self, log: Log, timestamp: int, from_offset: int) -> TimestampOffset | None:
        """Like `first_from`, for messages from an offset on: markers of transactions do not count."""
        return await self._search(log, lambda: log.search_message(timestamp, from_offset))

    async def largest(self, log: Log) -> TimestampOffset | None:
        """(timestamp, offset) of the first record with the largest timestamp. Raises KafkaError."""
        return await self._search(log, log.search_largest_timestamp)

    def close(self) -> None:
        """Stop the threads. Blocks until they have noticed."""
        self._closed = True
        for pace in self._paces:
            pace.stopped = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def _search(self, log: Log, begin: Callable[[], Search]) -> TimestampOffset | None:
        """Retention and compaction may take away what is being read; then it is looked for again."""
        for _ in range(_TRIES_MAX):
            try:
                found = await self._run(begin())
            except FileClosed:
                continue
            except OSError as error:
                raise StorageError(f"cannot read {log.directory}: {error}") from error
            if found is None or found[1] >= log.start_offset:
                return found
        raise StorageError(f"the segments of {log.directory} change faster than they can be searched")

    async def _run(self, search: Search) -> TimestampOffset | None:
        try:
            walk = next(search)
            while True:
                walk = search.send(await self._walk(walk))
        except StopIteration as end:
            found: TimestampOffset | None = end.value
            return found

    async def _walk(self, walk: Walk) -> TimestampOffset | None:
        if self._closed:
            raise _stopped()
        pace = Pace(self._clock)
        self._paces.add(pace)
        try:
            return await self._loop.run_in_executor(self._pool, walk.run, pace.spend)
        except Stopped:
            raise _stopped() from None
        finally:
            self._paces.discard(pace)


def _stopped() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is being stopped")
