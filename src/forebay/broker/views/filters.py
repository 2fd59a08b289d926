"""Filtering in threads: batches of a source become batches of a view.

A thread that filters shares the interpreter with the event loop. So it is given small slices of a log, and
rests between batches (`pace.py`). The same threads compile the queries, when they are first used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from forebay.broker.pace import Pace
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.views.cache import ViewCache
from forebay.clock import Clock
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.view_image import ViewImage
from forebay.core.views.filtering import Filtered, filter_batches
from forebay.core.views.view import CompiledView, compile_view
from forebay.core.views.view_error import ViewError
from forebay.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from forebay.storage.disk import FileClosed
from forebay.storage.log.files import LogFiles
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.parts import FileRange

log = logging.getLogger(__name__)


class Source(NamedTuple):
    """A part of a log, of whole batches, that is to be filtered."""

    topic: str
    partition: int
    files: LogFiles
    generation: int
    """Of the log: it changes when the log is cut."""
    found: LogSlice
    first_offset: int
    """Where the reader goes on."""


class ViewFilters:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        pool: Executor,
        metrics: Metrics,
        cache: ViewCache,
        decompress_max_bytes: Callable[[], int],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._pool = pool
        self._metrics = metrics
        self.cache = cache
        self._decompress_max_bytes = decompress_max_bytes
        self._compiled: dict[bytes, CompiledView | str] = {}
        """By the id of the view, which is never altered: what it was compiled to, or why it cannot be.
        Threads add, the loop removes."""
        self._closed = False

    async def run(self, view: ViewImage, source: Source) -> Filtered:
        """What the view shows of a part of its source.

        Raises KafkaError, and FileClosed if the part was deleted or compacted before it could be read.
        """
        if self._closed:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is being stopped")
        filtered = await self._loop.run_in_executor(self._pool, self._filter, view, source)
        metrics = self._metrics
        metrics.view_records_examined += filtered.examined
        metrics.view_records_delivered += filtered.delivered
        metrics.view_records_invalid += filtered.invalid
        return filtered

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Forget the queries of views that are gone, and what they have shown."""
        if after.view_names is not before.view_names:
            self.cache.keep(after.view_names)
            for view_id in [each for each in self._compiled if each not in after.view_names]:
                self._compiled.pop(view_id, None)

    async def load(self, part: FileRange) -> None:
        """Bring a part of a file into memory, so that it can be sent without waiting. Raises OSError."""
        await self._loop.run_in_executor(self._pool, part.file.pread, part.length, part.position)

    def close(self) -> None:
        """Blocks until the threads have ended."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)

    # -- in a thread -----------------------------------------------------------------------------------

    def _filter(self, view: ViewImage, source: Source) -> Filtered:
        compiled = self._compiled.get(view.view_id)
        if compiled is None:
            compiled = self._compiled[view.view_id] = _compile(view)
        if isinstance(compiled, str):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, compiled)
        found = source.found
        try:
            filtered = filter_batches(
                compiled,
                memoryview(source.files.read(found)),
                source.first_offset,
                found.next_offset,
                topic=source.topic,
                partition=source.partition,
                now_ms=self._clock.now_ms(),
                decompress_max_bytes=self._decompress_max_bytes(),
                spend=Pace(self._clock).spend,
            )
            if compiled.is_constant and not view.materialized:
                self.cache.add(view, found, source.generation, filtered)
            return filtered
        except FileClosed:
            raise
        except ProtocolError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a batch cannot be read: {error}") from error
        except OSError as error:
            raise StorageError(
                f"a part of {source.topic}-{source.partition} cannot be read: {error}"
            ) from error


def _compile(view: ViewImage) -> CompiledView | str:
    """The query, or why it cannot be used here: a broker that knows more has accepted it."""
    reason = "it was made by a later version of Forebay: upgrade this broker"
    if view.is_known:
        try:
            return compile_view(view.where, view.select, keep_tombstones=view.keep_tombstones)
        except ViewError as error:
            reason = str(error)
    log.warning("a view cannot be read here", extra={"view": view.name, "reason": reason})
    return f"view {view.name!r} cannot be read here: {reason}"
