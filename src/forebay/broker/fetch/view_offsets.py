"""Offsets by time in views: those of messages that a view shows.

The source is filtered from the first message on that has the time, in turns as fetches are, until a message
is found that the view shows. Where it shows little, that may take long, so a request ends after a while with
an error that clients try again after. What was looked at by then is remembered, and the next request goes on.

What is in the object store only is searched, too. For the largest timestamp the local part comes first: then
segments in the store that are older than what was found need not be read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from forebay.broker.net.connection import Connection
from forebay.broker.partition.partition import Partition
from forebay.broker.tiers.manifests.known_manifest import known_manifest
from forebay.broker.views.filters import Reader, Source, ViewFilters
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.view_image import ViewImage
from forebay.core.views.catalog import view_named
from forebay.core.views.visible_times import TimeSearch, TimestampOffset
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.disk import FileClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.broker.tiers.remote_reads import RemoteReads
    from forebay.storage.log.segment.segment_list import LogSlice

SEARCH_S = 10.0
"""How long one request searches a view, all of its partitions together."""
REQUEST_S = 25.0
"""How long it searches all views together: clients wait for 30 s."""
_SLICE_BYTES = 256 * 1024
_REMEMBERED_MAX = 1_000
_TRIES_MAX = 5

_Key = tuple[bytes, int, int, int | None, str]
"""The id of a view, a partition of its source, the generation of its log, what is searched for, and in which
object; empty for all of the partition."""


class SearchLimits(NamedTuple):
    reader: Reader
    end_offset: int
    """Where the client's reading ends."""
    deadline: float
    """On the loop's clock: see `ViewOffsets.deadline`."""


class ViewOffsets:
    def __init__(
        self,
        filters: ViewFilters,
        metadata: Metadata,
        loop: asyncio.AbstractEventLoop,
        remote_reads: Callable[[], RemoteReads | None],
    ) -> None:
        """`remote_reads`: None without an object store."""
        self._filters = filters
        self._remote_reads = remote_reads
        self._metadata = metadata
        self._loop = loop
        self._begun: OrderedDict[_Key, TimeSearch] = OrderedDict()
        """Searches that have not come to their end."""

    def view(self, topic: str) -> ViewImage | None:
        return view_named(self._metadata.image, topic)

    def deadline(self) -> float:
        """When a request that begins with a view now has searched it for long enough."""
        return self._loop.time() + SEARCH_S

    def last_deadline(self) -> float:
        """When a request that comes now has searched for long enough, whatever it has found."""
        return self._loop.time() + REQUEST_S

    def limits(self, connection: Connection, end_offset: int, deadline: float) -> SearchLimits:
        reader = Reader(connection.sender, lambda: not connection.closed)
        return SearchLimits(reader, end_offset, deadline)

    async def first_from(
        self, view: ViewImage, partition: Partition, timestamp: int, source_offset: int, limits: SearchLimits
    ) -> TimestampOffset | None:
        """(timestamp, offset) of the first message shown that is not older. Raises KafkaError.

        `source_offset`: of the first message of the source that is not older.
        """
        return await self._run(view, partition, TimeSearch(timestamp, source_offset), limits)

    async def largest(
        self, view: ViewImage, partition: Partition, limits: SearchLimits
    ) -> TimestampOffset | None:
        """(timestamp, offset) of the first message shown with the largest timestamp. Raises KafkaError."""
        local_start = partition.log.start_offset
        best = await self._run(view, partition, TimeSearch(None, local_start), limits)
        manifest = known_manifest(partition)
        for segment in reversed(() if manifest is None else manifest.segments):
            is_older = best is not None and segment.max_timestamp < best[0]
            if is_older or segment.base_offset >= local_start:
                continue
            search = TimeSearch(None, max(segment.base_offset, partition.start_offset))
            within = limits._replace(end_offset=min(segment.next_offset, limits.end_offset))
            found = await self._run(view, partition, search, within, segment.key)
            if found is not None and (best is None or found[0] >= best[0]):
                best = found
        return best

    async def _run(
        self,
        view: ViewImage,
        partition: Partition,
        search: TimeSearch,
        limits: SearchLimits,
        object_key: str = "",
    ) -> TimestampOffset | None:
        key = view.view_id, partition.index, partition.log.generation, search.timestamp, object_key
        search = self._gone_on_with(key, partition, search, limits.end_offset)
        tries = 0
        while not search.is_over:
            try:
                source = await self._next_source(partition, search, limits)
            except KafkaError:
                self._remember(key, search)
                raise
            if source is None:
                break
            if self._loop.time() >= limits.deadline:
                self._remember(key, search)
                problem = (
                    f"{view.name!r} was searched up to offset {search.next_offset} of {partition}; ask again"
                )
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, problem)
            try:
                search = await self._filters.search(view, source, search, limits.reader)
            except FileClosed:  # deleted or compacted meanwhile
                tries += 1
                if tries >= _TRIES_MAX:
                    raise partition.not_leader() from None
        if search.timestamp is None:
            self._remember(key, search)  # what comes later is compared with what was found
        return search.best

    def _gone_on_with(
        self, key: _Key, partition: Partition, search: TimeSearch, end_offset: int
    ) -> TimeSearch:
        """The same search, from where the last request has come to, if that still counts for this one."""
        begun = self._begun.pop(key, None)
        if begun is None or not search.next_offset <= begun.next_offset <= end_offset:
            return search
        is_deleted = begun.best is not None and begun.best[1] < partition.start_offset
        return search if is_deleted else begun

    def _remember(self, key: _Key, search: TimeSearch) -> None:
        self._begun[key] = search
        while len(self._begun) > _REMEMBERED_MAX:
            self._begun.popitem(last=False)

    async def _next_source(
        self, partition: Partition, search: TimeSearch, limits: SearchLimits
    ) -> Source | None:
        """The next part of the source; None at its end."""
        if partition.closed or not partition.is_leader:
            raise partition.not_leader()
        offset = max(search.next_offset, partition.start_offset)
        if offset >= limits.end_offset:
            return None
        found = await self._next_part(partition, offset, limits)
        if found is None or found.range is None:
            return None
        return Source(
            topic=partition.topic,
            partition=partition.index,
            files=partition.log.files,
            generation=partition.log.generation,
            found=found,
            first_offset=offset,
        )

    async def _next_part(self, partition: Partition, offset: int, limits: SearchLimits) -> LogSlice | None:
        log = partition.log
        if partition.remote is None or offset >= log.start_offset:
            return log.read(offset, _SLICE_BYTES, upper_offset=limits.end_offset)
        reads = self._remote_reads()
        left_s = limits.deadline - self._loop.time()
        found = None
        if reads is not None:
            found = await reads.read_soon(partition, offset, _SLICE_BYTES, timeout_s=left_s)
        if found is None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{partition} is not read from the object store in time; ask again",
            )
        return found
