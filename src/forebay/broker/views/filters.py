"""Filtering in threads: batches of a source become batches of a view.

A thread that filters shares the interpreter with the event loop. So it is given small slices of a log, in
turns (`filter_threads.py`), and rests between records (`pace.py`). The same threads compile the queries, when
they are first used.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Container
from functools import partial
from typing import NamedTuple

from forebay.broker.live_config import LiveConfig
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.tiers.missed_chunk import ChunkRange
from forebay.broker.views.cache import ViewCache
from forebay.broker.views.filter_threads import FilterThreads
from forebay.clock import Clock
from forebay.config.keys.fetch import FetchConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.view_image import ViewImage
from forebay.core.views.conditions.limits import RecordLimits
from forebay.core.views.filtering import Filtered, filter_batches
from forebay.core.views.turn import Place, Turn
from forebay.core.views.view import CompiledView, compile_view
from forebay.core.views.view_error import ViewError
from forebay.core.views.visible_times import TimeSearch, search_on
from forebay.errors import ErrorCode, KafkaError, ProtocolError, StorageError
from forebay.storage.disk import FileClosed
from forebay.storage.log.files import LogFiles
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.parts import FileRange

log = logging.getLogger(__name__)

_PLACES_MAX = 1_000
_COMPILED_CHARS_MAX = 1 << 18
"""Of the queries that are kept compiled: a character may become a hundred bytes. Thousands of usual ones."""


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

    def read(self) -> bytes:
        """Its bytes. For threads. Raises OSError, including FileClosed."""
        part = self.found.range
        if isinstance(part, ChunkRange):  # from the object store: it was checked when it came
            return part.file.pread(part.length, part.position)
        return self.files.read(self.found)


class Reader(NamedTuple):
    """Who reads a view: users take turns."""

    user: str
    """`OTHER_BROKERS` for those who fill materialized views."""
    is_waiting: Callable[[], bool]
    """False when the client has gone."""


class ViewFilters:
    def __init__(
        self, threads: FilterThreads, clock: Clock, metrics: Metrics, cache: ViewCache, settings: LiveConfig
    ) -> None:
        self._threads = threads
        self._clock = clock
        self._metrics = metrics
        self.cache = cache
        self._settings = settings
        self._queries = CompiledQueries()
        self._places = _Places()

    async def run(self, view: ViewImage, source: Source, reader: Reader) -> Filtered:
        """Filter a part of the source by the view: as much as one turn is enough for.

        Raises KafkaError, and FileClosed if the part was deleted or compacted before it could be read.
        """
        work = partial(self._filter, view, source)
        filtered = await self._threads.run(reader.user, view.view_id, work, reader.is_waiting)
        metrics = self._metrics
        metrics.view_records_examined += filtered.examined
        metrics.view_records_delivered += filtered.delivered
        metrics.view_records_invalid += filtered.invalid
        return filtered

    async def search(self, view: ViewImage, source: Source, search: TimeSearch, reader: Reader) -> TimeSearch:
        """Go on with a search for a time, by one turn. Raises what `run` raises."""
        limit = self._settings.current.storage.decompress_max_bytes

        def work(turn: Turn) -> TimeSearch:
            return search_on(search, self._filter(view, source, turn), limit)

        return await self._threads.run(reader.user, view.view_id, work, reader.is_waiting)

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Forget the queries of views that are gone, and what they have shown."""
        if after.view_names is not before.view_names:
            self.cache.keep(after.view_names)
            self._queries.keep(after.view_names)

    async def load(self, view: ViewImage, part: FileRange, reader: Reader) -> None:
        """Bring a part of a file into memory, so that it can be sent without waiting. Raises OSError."""

        def read(_: Turn) -> None:
            part.file.pread(part.length, part.position)

        await self._threads.run(reader.user, view.view_id, read, reader.is_waiting)

    def stop(self) -> None:
        """Let no fetch wait any longer."""
        self._threads.stop()

    def close(self) -> None:
        """Blocks until the threads have ended, or are given up."""
        self._threads.close()

    @property
    def is_late(self) -> bool:
        """True if a thread was left behind when the broker was stopped."""
        return self._threads.is_late

    # -- in a thread -----------------------------------------------------------------------------------

    def _filter(self, view: ViewImage, source: Source, turn: Turn) -> Filtered:
        config = self._settings.current
        compiled = self._queries.get(view, _record_limits(config.fetch))
        if isinstance(compiled, str):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, compiled)
        found = source.found
        try:
            filtered = filter_batches(
                compiled,
                memoryview(source.read()),
                source.first_offset,
                found.next_offset,
                topic=source.topic,
                partition=source.partition,
                now_ms=self._clock.now_ms(),
                decompress_max_bytes=config.storage.decompress_max_bytes,
                keeps_times=view.materialized,
                turn=turn,
                place=self._places.get((view.view_id, source.partition, source.first_offset)),
            )
            if filtered.cut is not None:
                self._places.add((view.view_id, source.partition, filtered.next_offset), filtered.cut)
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


class _Places:
    """Where turns have ended within batches; the oldest are forgotten, and looked for again. For threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: OrderedDict[tuple[bytes, int, int], Place] = OrderedDict()

    def get(self, key: tuple[bytes, int, int]) -> Place | None:
        with self._lock:
            return self._places.get(key)

    def add(self, key: tuple[bytes, int, int], place: Place) -> None:
        """`key`: the id of a view, a partition, and the offset that is next."""
        with self._lock:
            self._places[key] = place
            if len(self._places) > _PLACES_MAX:
                self._places.popitem(last=False)


class CompiledQueries:
    """Compiled queries, or why they cannot be compiled; those that were not used for longest are
    forgotten.

    A view is never altered, so its id stands for its query. Threads ask, the loop removes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[bytes, tuple[CompiledView | str, RecordLimits, int]] = OrderedDict()
        self._chars = 0

    def get(self, view: ViewImage, limits: RecordLimits) -> CompiledView | str:
        """`limits`: they are part of what is compiled."""
        with self._lock:
            found = self._made.get(view.view_id)
            if found is not None and found[1] == limits:
                self._made.move_to_end(view.view_id)
                return found[0]
        compiled = _compile(view, limits)
        chars = len(view.where or "") + len(view.select or "")
        with self._lock:
            self._drop(view.view_id)
            self._made[view.view_id] = compiled, limits, chars
            self._chars += chars
            while self._chars > _COMPILED_CHARS_MAX:
                self._drop(next(iter(self._made)))
        return compiled

    def keep(self, view_ids: Container[bytes]) -> None:
        with self._lock:
            for view_id in [each for each in self._made if each not in view_ids]:
                self._drop(view_id)

    def _drop(self, view_id: bytes) -> None:
        dropped = self._made.pop(view_id, None)
        if dropped is not None:
            self._chars -= dropped[2]


def _record_limits(config: FetchConfig) -> RecordLimits:
    return RecordLimits(
        bytes_max=config.view_record_max_bytes,
        elements_max=config.view_record_elements_max,
        steps_max=config.view_record_steps_max,
    )


def _compile(view: ViewImage, limits: RecordLimits) -> CompiledView | str:
    """The query, or why it cannot be used here: a broker that knows more has accepted it."""
    reason = "it was made by a later version of Forebay: upgrade this broker"
    if view.is_known:
        try:
            return compile_view(view.where, view.select, keep_tombstones=view.keep_tombstones, limits=limits)
        except ViewError as error:
            reason = str(error)
    log.warning("a view cannot be read here", extra={"view": view.name, "reason": reason})
    return f"view {view.name!r} cannot be read here: {reason}"
