"""Offsets by time in views: those of messages that a view shows.

The source is filtered from the first message on that has the time, in turns as fetches are, until a message
is found that the view shows. Where it shows little, that may take long, so a request ends after a while with
an error that clients try again after. What was looked at by then is remembered, and the next request goes on.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from forebay.broker.net.connection import Connection
from forebay.broker.partition.partition import Partition
from forebay.broker.views.filters import Reader, Source, ViewFilters
from forebay.coordination.metadata import Metadata
from forebay.core.cluster.images.view_image import ViewImage
from forebay.core.views.catalog import view_named
from forebay.core.views.visible_times import TimeSearch, TimestampOffset
from forebay.errors import ErrorCode, KafkaError
from forebay.storage.disk import FileClosed

SEARCH_S = 10.0
"""How long one request searches a view, all of its partitions together."""
REQUEST_S = 25.0
"""How long it searches all views together: clients wait for 30 s."""
_SLICE_BYTES = 256 * 1024
_REMEMBERED_MAX = 1_000
_TRIES_MAX = 5

_Key = tuple[bytes, int, int, int | None]
"""The id of a view, a partition of its source, the generation of its log, and what is searched for."""


class SearchLimits(NamedTuple):
    reader: Reader
    end_offset: int
    """Where the client's reading ends."""
    deadline: float
    """On the loop's clock: see `ViewOffsets.deadline`."""


class ViewOffsets:
    def __init__(self, filters: ViewFilters, metadata: Metadata, loop: asyncio.AbstractEventLoop) -> None:
        self._filters = filters
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
        reader = Reader(connection.principal, lambda: not connection.closed)
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
        return await self._run(view, partition, TimeSearch(None, partition.log.start_offset), limits)

    async def _run(
        self, view: ViewImage, partition: Partition, search: TimeSearch, limits: SearchLimits
    ) -> TimestampOffset | None:
        key = view.view_id, partition.index, partition.log.generation, search.timestamp
        search = self._gone_on_with(key, partition, search, limits.end_offset)
        tries = 0
        while not search.is_over:
            source = _next_source(partition, search, limits.end_offset)
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
        is_deleted = begun.best is not None and begun.best[1] < partition.log.start_offset
        return search if is_deleted else begun

    def _remember(self, key: _Key, search: TimeSearch) -> None:
        self._begun[key] = search
        while len(self._begun) > _REMEMBERED_MAX:
            self._begun.popitem(last=False)


def _next_source(partition: Partition, search: TimeSearch, end_offset: int) -> Source | None:
    """The next part of the source; None at its end."""
    if partition.closed or not partition.is_leader:
        raise partition.not_leader()
    log = partition.log
    offset = max(search.next_offset, log.start_offset)
    found = log.read(offset, _SLICE_BYTES, upper_offset=end_offset) if offset < end_offset else None
    if found is None or found.range is None:
        return None
    return Source(
        topic=partition.topic,
        partition=partition.index,
        files=log.files,
        generation=log.generation,
        found=found,
        first_offset=offset,
    )
