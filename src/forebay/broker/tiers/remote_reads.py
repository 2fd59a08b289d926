"""Reading messages that are only in the object store.

A read is answered from the chunks on the local disk (`chunk_files.py`), or not at all: then the chunk is
asked for, in a thread, and the reader is notified when it is there. Readers of the same chunk share one
request. A reader that goes on to the next chunk mostly finds it there, because some chunks are read ahead.

Only readers of old messages wait for the object store. How many requests may wait is bounded; beyond it
readers are answered with nothing, and ask again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.partition import Partition
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.tiers.chunk_files import ChunkFile, ChunkFiles
from forebay.broker.tiers.missed_chunk import ChunkName, ChunkRange, Missed
from forebay.broker.tiers.store_threads import StoreThreads
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.tiers.object_store import ObjectStore, ObjectStoreError
from forebay.tiers.reading import read_chunk, read_index
from forebay.wire.tiers.manifest import RemoteSegment
from forebay.wire.tiers.segment_object import SegmentIndex, chunk_at

log = logging.getLogger(__name__)

_PAUSE_AFTER_FAILURE_S = 0.5
_CHUNK_ENTRY_BYTES = 300
"""About what an entry of an index takes in memory."""
_SEGMENTS_TRIED_MAX = 8


class _Loaded(NamedTuple):
    segment_index: SegmentIndex
    number: int
    file: ChunkFile | None


class RemoteReads:
    def __init__(
        self,
        store: ObjectStore,
        files: ChunkFiles,
        settings: LiveConfig,
        metrics: Metrics,
        threads: StoreThreads,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._store = store
        self._files = files
        self._settings = settings
        self._metrics = metrics
        self._threads = threads
        self._loop = loop
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()
        self._index_bytes = 0
        self._loading: dict[ChunkName, list[Callable[[], None]]] = {}
        """Chunks that are being read, with those to notify."""
        self._failed_until: dict[ChunkName, float] = {}
        self._closed = False

    # -- reading ---------------------------------------------------------------------------------------

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, min_one: bool
    ) -> LogSlice | Missed | None:
        """Whole batches from the one that holds an offset, which is below the start of the local log.

        None if the manifest is not known yet. Raises KafkaError if the partition begins later.
        """
        remote = partition.remote
        if remote is None or not remote.known:
            return None
        for _ in range(_SEGMENTS_TRIED_MAX):
            segment = None if remote.manifest is None else remote.manifest.find(offset)
            if segment is None:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {offset} is not in {partition}, which begins at {partition.start_offset}",
                )
            found = self._read_in(segment, offset, max_bytes, min_one=min_one)
            if found is not None:
                return found
            offset = segment.next_offset  # the offsets in between belong to no message
            if offset >= partition.log.start_offset:
                return partition.log.read(
                    offset, max_bytes, min_one=min_one, upper_offset=partition.last_stable_offset
                )
        return None

    def _read_in(
        self, segment: RemoteSegment, offset: int, max_bytes: int, *, min_one: bool
    ) -> LogSlice | Missed | None:
        """None if the segment has no message from the offset on."""
        index = self._index(segment)
        if index is None:
            return self._miss(segment, offset, (segment.key, -1))
        number = chunk_at(index.chunks, offset)
        if number is None or index.chunks[number].base_offset >= segment.next_offset:
            return None
        name = (segment.key, number)
        file = self._files.get(name)
        if file is None:
            return self._miss(segment, offset, name)
        if not file.has_batch(offset, segment.next_offset):
            return None  # it was cut off in a gap, and the chunk goes on behind that
        self._metrics.remote_chunk_hits += 1
        self._read_ahead(segment, index, number)
        place = file.find(offset, max_bytes, end_offset=segment.next_offset, min_one=min_one)
        if place is None:
            return LogSlice(None, offset, None, True)
        position, length, next_offset = place
        if not file.cached(position, length):
            return self._miss(segment, offset, name)
        aborted = [
            entry
            for entry in index.aborted
            if entry.first_offset < next_offset and entry.last_offset >= offset
        ]
        return LogSlice(ChunkRange(file, position, length, aborted), next_offset, None, True)

    def _index(self, segment: RemoteSegment) -> SegmentIndex | None:
        found = self._indexes.get(segment.key)
        if found is not None:
            self._indexes.move_to_end(segment.key)
        return found

    def _miss(self, segment: RemoteSegment, offset: int, name: ChunkName) -> Missed:
        self._load(segment, offset, name)
        return Missed(name)

    def notify(self, missed: Missed, done: Callable[[], None]) -> None:
        """Call `done` when the chunk is there. If it cannot be read, nobody is called."""
        waiting = self._loading.get(missed.name)
        if waiting is not None and done not in waiting:
            waiting.append(done)

    async def read_soon(
        self, partition: Partition, offset: int, max_bytes: int, *, timeout_s: float
    ) -> LogSlice | None:
        """Like `read`, but waits for the chunk; None if it has not come in time. Raises KafkaError."""
        deadline = self._loop.time() + timeout_s
        while True:
            if partition.closed or not partition.is_leader:
                raise partition.not_leader()
            found = self.read(partition, offset, max_bytes, min_one=True)
            left_s = deadline - self._loop.time()
            if isinstance(found, LogSlice) or left_s <= 0 or self._closed:
                return found if isinstance(found, LogSlice) else None
            arrived = asyncio.Event()
            timer = self._loop.call_later(min(left_s, _PAUSE_AFTER_FAILURE_S), arrived.set)
            if found is not None:
                self.notify(found, arrived.set)
            await arrived.wait()
            timer.cancel()

    # -- loading ---------------------------------------------------------------------------------------

    def _read_ahead(self, segment: RemoteSegment, index: SegmentIndex, number: int) -> None:
        last = min(number + self._settings.current.tiers.read_ahead_chunks, len(index.chunks) - 1)
        for ahead in range(number + 1, last + 1):
            name = (segment.key, ahead)
            if self._files.get(name) is None:
                self._load(segment, index.chunks[ahead].base_offset, name)

    def _load(self, segment: RemoteSegment, offset: int, name: ChunkName) -> None:
        config = self._settings.current.tiers
        if self._closed or name in self._loading or len(self._loading) >= config.reads_pending_max:
            return
        until = self._failed_until.pop(name, 0.0)
        if until > self._loop.time():
            self._failed_until[name] = until
            return
        self._loading[name] = []
        index, file = self._indexes.get(segment.key), self._files.get(name)
        work = partial(self._work, segment, offset, index, file, self._files.new_path())
        self._threads.submit(partial(self._run, segment, name, work))

    def _run(self, segment: RemoteSegment, name: ChunkName, work: Callable[[], _Loaded]) -> None:
        """Runs in a thread."""
        try:
            loaded: _Loaded | Exception = work()
        except Exception as error:
            loaded = error
        if not self._closed:
            self._loop.call_soon_threadsafe(self._done, segment, name, loaded)

    def _work(
        self,
        segment: RemoteSegment,
        offset: int,
        index: SegmentIndex | None,
        file: ChunkFile | None,
        path: str,
    ) -> _Loaded:
        """Runs in a thread: reads the index, if need be, and the chunk that holds the offset."""
        self._files.remove_gone()
        if index is None:
            index = read_index(self._store, segment)
        number = chunk_at(index.chunks, offset)
        if number is None:
            return _Loaded(index, -1, None)
        if file is not None:
            file.pread(file.size, 0)  # it was not in memory any more
            return _Loaded(index, -1, None)
        data = read_chunk(self._store, segment, index.chunks[number])
        if self._closed:
            return _Loaded(index, -1, None)  # it took long, and the broker has stopped meanwhile
        return _Loaded(index, number, self._files.write(path, data))

    def _done(self, segment: RemoteSegment, name: ChunkName, loaded: _Loaded | Exception) -> None:
        waiting = self._loading.pop(name, [])
        if isinstance(loaded, Exception):
            self._report(segment, name, loaded)
            return
        if segment.key not in self._indexes:
            self._add_index(segment.key, loaded.segment_index)
        if loaded.file is not None:
            self._metrics.remote_chunks_read += 1
            self._metrics.remote_bytes_read += loaded.file.size
            chunk = (segment.key, loaded.number)
            if self._files.get(chunk) is None:
                self._files.add(chunk, loaded.file, self._settings.current.tiers.cache_bytes)
        for done in waiting:
            done()

    def _add_index(self, key: str, index: SegmentIndex) -> None:
        self._indexes[key] = index
        self._index_bytes += _size(index)
        while self._index_bytes > self._settings.current.tiers.index_cache_bytes and len(self._indexes) > 1:
            _, oldest = self._indexes.popitem(last=False)
            self._index_bytes -= _size(oldest)

    def _report(self, segment: RemoteSegment, name: ChunkName, error: Exception) -> None:
        self._metrics.remote_failures += 1
        if len(self._failed_until) > 10_000:
            self._failed_until.clear()
        self._failed_until[name] = self._loop.time() + _PAUSE_AFTER_FAILURE_S
        ours = isinstance(error, (ObjectStoreError, OSError, ProtocolError))
        log.warning(
            "old messages cannot be read from the object store; they will be asked for again",
            extra={"segment": segment.key, "reason": str(error)},
            exc_info=None if ours else error,
        )

    # -- ending ----------------------------------------------------------------------------------------

    @property
    def cached_bytes(self) -> int:
        return self._files.bytes

    @property
    def loading(self) -> int:
        return len(self._loading)

    def close(self) -> None:
        self._closed = True


def _size(index: SegmentIndex) -> int:
    return len(index.producers) + (len(index.chunks) + len(index.aborted)) * _CHUNK_ENTRY_BYTES
