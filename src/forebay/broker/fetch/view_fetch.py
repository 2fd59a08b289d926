"""The fetches that name a view: the source is read, filtered in threads, and answered from memory.

A view is read from the leader of its source, within the limits of its source: high watermark, last stable
offset, delay, log start. What is in the object store only is filtered as it comes from there. A fetch takes
slices of the source, one after the other, until it has examined enough. What matched is answered; where
nothing did, an empty batch moves the client on. So each answer takes a bounded amount of work, and a client
passes a region without a match in a few round trips.

At the end of the source a fetch waits as any other does. What is appended is filtered at once, and the client
is answered when something matched, or when its time is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial

from forebay.broker.authorization.authorization import sent_by_broker
from forebay.broker.fetch.fetch_host import FetchHost
from forebay.broker.fetch.repeated_fetch import RepeatedFetch
from forebay.broker.fetch.view_read import ViewRead
from forebay.broker.net.request_context import RequestContext
from forebay.broker.net.responses.deferred_replies import Reply
from forebay.broker.partition.leader_epoch_checks import hear_of
from forebay.broker.partition.partition import Partition
from forebay.broker.tiers.missed_chunk import ChunkRange
from forebay.broker.views.cache import Cached
from forebay.broker.views.filter_threads import OTHER_BROKERS
from forebay.broker.views.filters import Reader, Source
from forebay.core.partition.fetch_session import FetchContext, FetchTarget
from forebay.core.views.catalog import view_named
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.disk import FileClosed
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.messages.fetch import AbortedTransaction, FetchRequest, PartitionData

log = logging.getLogger(__name__)

_SLICE_BYTES = 256 * 1024
"""Of the source, for a thread to filter at a time: others get their turn in between."""
_AFTER_A_MATCH_BYTES = 1 << 20
"""Of the source, examined by a fetch that has something to answer."""
_SCAN_S = 0.2
"""How long a fetch goes on from slice to slice."""
_PENDING_MAX = 16
"""Slices that a fetch of many partitions has filtered at a time: what they become is held in memory."""
_CACHED_PARTS_MAX = 32
"""Parts of the cache that are taken at a time, of partitions with many small segments."""
_TRIES_MAX = 5


class ViewFetch(RepeatedFetch):
    """One request that names at least one view, perhaps topics as well."""

    __slots__ = (
        "_failures",
        "_is_copied",
        "_pending",
        "_reader",
        "_reads",
        "_reserved",
        "_scans",
    )

    def __init__(
        self,
        service: FetchHost,
        request: FetchRequest,
        session: FetchContext,
        listener: str,
        version: int,
    ) -> None:
        super().__init__(service, request, session, listener, version)
        self._reads: dict[FetchTarget, ViewRead] = {}
        self._pending: list[Coroutine[None, None, None]] = []
        """The work of threads that this fetch waits for."""
        self._reserved = 0
        """How many bytes of sources they look at: about as much as they may find, and more is not begun."""
        self._failures: dict[ViewRead, KafkaError] = {}
        self._scans = True
        self._is_copied = False
        """True if a broker asks, which fills a materialized view."""
        self._reader = Reader(OTHER_BROKERS, lambda: True)

    def start(self, context: RequestContext) -> Reply:
        reply = context.defer()
        work = self.answer(context, reply)
        self._service.background.spawn(context.counted_work(work), "answering a fetch of a view", work)
        return reply

    def answer(self, context: RequestContext, reply: Reply) -> Coroutine[None, None, None]:
        """Begin to answer. To be awaited."""
        self._look_up_client(context)
        self._is_copied = sent_by_broker(self._service.authorization, context)
        user = OTHER_BROKERS if self._is_copied else context.connection.sender
        self._reader = Reader(user, lambda: not reply.abandoned)
        self._end_wait_with(reply)
        return self._answer(reply)

    async def _answer(self, reply: Reply) -> None:
        try:
            await self._collect(reply)
            if self._is_copied:
                await self._sync_sources()
            if reply.abandoned:
                return
            if not self._service.lease.valid():
                reply.resolve(self.refuse())
            elif self._cold():
                self._load(reply)
            else:
                reply.resolve(self._response())
        except Exception:
            log.exception("a fetch of a view could not be answered")
            reply.abort()

    async def _collect(self, reply: Reply) -> None:
        """Read and filter until there is something to answer. Ends with a reading that is up to date."""
        now, deadline_s, has_waited = self._service.loop.time, self._deadline_s(), False
        scan_until = now() + _SCAN_S
        while not reply.abandoned:
            self._scans = now() < scan_until
            urgent = self._read()
            if self._pending:
                await self._filter()
            elif urgent and not has_waited and (news := self._news()):
                has_waited = True
                await hear_of(news, self._service.metadata)
                scan_until = now() + _SCAN_S
            elif urgent or self._is_enough() or self._is_overtaken or now() >= deadline_s:
                return
            else:
                await self._wait_for(1, deadline_s)
                scan_until = now() + _SCAN_S if now() < deadline_s else 0.0

    async def _sync_sources(self) -> None:
        """A copy must not outlive what it is made of: what one disk alone has is synced first."""
        waits: dict[Partition, asyncio.Future[None]] = {}
        for partition in dict.fromkeys(self._partitions):
            if partition.commits_at_once and partition.log.recovery_point < partition.log.end_offset:
                synced: asyncio.Future[None] = self._service.loop.create_future()
                self._service.flush.wait(partition.log.files, partial(_settle, synced))
                waits[partition] = synced
        if not waits:
            return
        outcomes = await asyncio.gather(*waits.values(), return_exceptions=True)
        failed = {p: e for p, e in zip(waits, outcomes, strict=True) if isinstance(e, KafkaError)}
        for i, (target, _, size) in enumerate(self._found if failed else ()):
            error = self._error_of_source(target, failed) if size else None
            if error is not None:
                self._found[i] = (target, self._failed(target, error), 0)
                self._size -= size

    def _error_of_source(self, target: FetchTarget, failed: dict[Partition, KafkaError]) -> KafkaError | None:
        try:
            return failed.get(self._partition(target))
        except KafkaError as gone:
            return gone

    def _is_enough(self) -> bool:
        """True if there is as much to answer as the client wants. Empty batches do not count."""
        gaps = sum(read.size for read in self._reads.values() if not read.delivered)
        return self._bytes_missing() + gaps <= 0

    # -- reading -------------------------------------------------------------------------------------

    def _read_target(self, target: FetchTarget, left: int) -> tuple[PartitionData, int]:
        read = self._read_of(target)
        if read is None:
            return super()._read_target(target, left)
        if read in self._failures and not read.size:
            raise self._failures[read]
        data, _ = super()._read_target(target, left)
        if data.diverging_epoch.epoch >= 0 or not read.size:
            return data, 0
        if self._size and read.size > left:
            self._urgent = True  # what others have found fills the answer; the next fetch finds it again
            return data, 0
        if self._committed:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                for producer_id, first_offset in read.aborted
            ]
        data.records = read.records()
        return data, read.size

    def _read_of(self, target: FetchTarget) -> ViewRead | None:
        """The read of a view's partition in this fetch; None for a topic's."""
        view = view_named(self._service.metadata.image, target.topic)
        if view is None:
            self._reads.pop(target, None)  # it was deleted while the fetch waited
            return None
        read = self._reads.get(target)
        if read is None or read.view.view_id != view.view_id:
            read = self._reads[target] = ViewRead(view, target.request.fetch_offset)
        return read

    def _read_topic(self, target: FetchTarget) -> str | None:
        image = self._service.metadata.image
        view = view_named(image, target.topic)
        return super()._read_topic(target) if view is None else image.topic_names.get(view.source_id)

    def _partition(self, target: FetchTarget) -> Partition:
        read = self._reads.get(target)
        if read is None:
            return super()._partition(target)
        table = self._service.partitions
        return table.get(table.name_of(read.view.source_id), target.request.partition)

    def _sent_elsewhere(self, *_: object) -> bool:
        return False  # only the leader filters

    def _slice(self, partition: Partition, target: FetchTarget, left: int, end: int) -> LogSlice:
        """Of a view's source: the next part to be filtered, if this fetch may go on. It is not answered."""
        read = self._reads.get(target)
        if read is None:
            return super()._slice(partition, target, left, end)
        self._partitions.append(partition)
        read.in_epoch(partition.leader_epoch)
        wanted = target.request
        nothing = LogSlice(None, read.next_offset)
        if read in self._failures:
            self._urgent = True
            return nothing  # what lies before is answered first; the next fetch begins with the failure
        if wanted.fetch_offset < read.next_offset < (partition.known_start_offset or 0):
            self._urgent = True
            return nothing  # retention was faster: what is known of the part before is answered
        is_full = self._size + read.size > 0 and read.size >= min(wanted.partition_max_bytes, left)
        if is_full or read.is_cut or not self._scans or read.examined_bytes >= self._examined_max(read):
            self._urgent = self._urgent or read.next_offset < end
            return nothing
        if len(self._pending) >= _PENDING_MAX or (self._pending and self._reserved >= left):
            return nothing  # its turn comes when those before it are done
        room = min(wanted.partition_max_bytes, left)
        for _ in range(_CACHED_PARTS_MAX):
            found = self._next_part(partition, read.next_offset, end)
            if found is None or found.range is None:
                return nothing
            if not self._take_cached(read, partition, found, room, end):
                return nothing
            if read.size >= room:
                break
        self._urgent = self._urgent or read.next_offset < end
        return nothing

    def _next_part(self, partition: Partition, offset: int, end: int) -> LogSlice | None:
        """The next part of the source; None if it has to come from the object store first."""
        if partition.remote is not None and offset < partition.log.start_offset:
            return self._remote_slice(partition, offset, _SLICE_BYTES, min_one=True)
        return partition.log.read(offset, _SLICE_BYTES, upper_offset=end)

    def _note_aborted(self, read: ViewRead, partition: Partition, found: LogSlice, next_offset: int) -> None:
        """Now: when the answer is made, the part may be gone from the local disk."""
        if not self._committed:
            return
        if isinstance(found.range, ChunkRange):
            read.note_aborted(found.range.aborted)
        elif partition.log.has_aborted:
            read.note_aborted(partition.log.aborted_transactions(read.next_offset, next_offset))

    def _take_cached(
        self, read: ViewRead, partition: Partition, found: LogSlice, room: int, end: int
    ) -> bool:
        """Take what is in the cache. Otherwise have the source filtered, or the cache read from the disk."""
        filters, generation = self._service.filters(), partition.log.generation
        cached = filters.cache.find(
            read.view, found, generation, read.next_offset, max(room - read.size, 0), end
        )
        self._note_aborted(
            read, partition, found, found.next_offset if cached is None else cached.next_offset
        )
        if cached is None:
            self._pending.append(self._filter_one(read, partition, found))
            self._reserved += 0 if found.range is None else found.range.length
            return False
        part = cached.range
        if not part.file.cached(part.position, part.length):
            self._pending.append(self._load_cached(read, cached))
            return False
        read.add_cached(cached)
        self._service.metrics.view_cached_bytes += part.length
        return True

    def _examined_max(self, read: ViewRead) -> int:
        limit = self._service.settings.current.fetch.view_source_max_bytes
        return min(limit, _AFTER_A_MATCH_BYTES) if read.delivered else limit

    # -- filtering -----------------------------------------------------------------------------------

    async def _filter(self) -> None:
        pending, self._pending, self._reserved = self._pending, [], 0
        await asyncio.gather(*pending)

    async def _load_cached(self, read: ViewRead, cached: Cached) -> None:
        try:
            await self._service.filters().load(read.view, cached.range, self._reader)
        except OSError as error:
            self._failures[read] = StorageError(f"what a view shows cannot be read: {error}")
        else:
            read.add_cached(cached)

    async def _filter_one(self, read: ViewRead, partition: Partition, found: LogSlice) -> None:
        source = Source(
            topic=partition.topic,
            partition=partition.index,
            files=partition.log.files,
            generation=partition.log.generation,
            found=found,
            first_offset=read.next_offset,
        )
        try:
            filtered = await self._service.filters().run(read.view, source, self._reader)
        except FileClosed as error:
            # Deleted or compacted meanwhile: the next reading finds what is there instead, or an error.
            read.tries += 1
            if read.tries >= _TRIES_MAX:
                self._failures[read] = partition.not_leader()
                log.warning("segments change faster than a view can read them", extra={"reason": str(error)})
        except KafkaError as error:
            self._failures[read] = partition.not_leader() if partition.closed else error
        except Exception:
            log.exception("a view cannot be filtered", extra={"view": read.view.name})
            self._failures[read] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the view cannot be filtered")
        else:
            if filtered.next_offset <= read.next_offset:
                self._failures[read] = StorageError(f"{partition} cannot be read at {read.next_offset}")
            read.add(filtered)


def _settle(synced: asyncio.Future[None], error: StorageError | None) -> None:
    if synced.done():
        return
    if error is None:
        synced.set_result(None)
    else:
        synced.set_exception(error)
