"""Opening partitions after the start: in a thread, a few at a time.

These are the partitions of new topics, those that move here or come back, and, on a broker with very many,
most of those that were on its disk when it started (`opening_queue.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.partition.log_jobs import LogJobs
from forebay.broker.partition.opening.opening_queue import OpeningQueue
from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.unused.unused_logs import UnusedLogs
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.topic_partition import TopicPartition
from forebay.errors import StorageError

if TYPE_CHECKING:
    from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

_ASKED_AT_ONCE = 64
"""Of the partitions that somebody waits for. The more come into use together, the more syncs go together."""
_BEHIND_AT_ONCE = 16
"""Of the others. One that somebody asks for meanwhile waits for these."""

Opened = tuple[TopicImage, PartitionState, Partition | StorageError]


class LaterOpening:
    def __init__(
        self,
        queue: OpeningQueue,
        opener: PartitionOpener,
        unused_logs: UnusedLogs,
        data: DataDir,
        jobs: LogJobs,
        *,
        image: Callable[[], ClusterImage],
        is_missing: Callable[[ClusterImage, TopicPartition], bool],
        take_over: Callable[[list[Opened]], None],
        pass_over: Callable[[list[TopicPartition]], None],
    ) -> None:
        """`image` gives the present image. `is_missing`: a partition belongs here and is not open.
        `take_over` is called on the loop with what was opened, and then calls `go_on`; `pass_over` with
        what will not be opened."""
        self._queue = queue
        self._opener = opener
        self._unused_logs = unused_logs
        self._data = data
        self._jobs = jobs
        self._image = image
        self._is_missing = is_missing
        self._take_over = take_over
        self._pass_over = pass_over
        self._is_running = False
        self._all_open = asyncio.Event()
        self._all_open.set()
        self._all_checked = asyncio.Event()

    @property
    def has_unchecked(self) -> bool:
        """True while partitions that were here when the broker started have not been opened."""
        return bool(self._queue.unchecked)

    def add(self, key: TopicPartition) -> None:
        """Have a partition opened by the next `open_some`."""
        self._queue.add(key)
        self._all_open.clear()

    async def all_open(self) -> None:
        """Wait until every partition is open that the image assigns to this broker, but for those that are
        opened behind."""
        await self._all_open.wait()

    async def all_checked(self) -> None:
        """Wait until all is open that was here when the broker started."""
        await self._all_checked.wait()

    def go_on(self) -> None:
        """Partitions have come into use: open the next."""
        self.open_some()
        if not self._queue.unchecked:
            self._all_checked.set()

    def open_some(self) -> None:
        """Have a few partitions opened in a thread, as the present image has them. The rest comes after."""
        if self._is_running or self._jobs.closed:
            return
        image = self._image()
        wanted: list[tuple[TopicImage, PartitionState]] = []
        found: list[TopicPartition] = []
        passed_over: list[TopicPartition] = []
        while max(len(wanted), len(found)) < self._at_once() and (key := self._queue.take()) is not None:
            if key in self._queue.unchecked:
                found.append(key)
            state = image.partition(*key)
            if state is not None and not state.unreadable and self._is_missing(image, key):
                wanted.append((image.topics[key[0]], state))
            else:
                passed_over.append(key)
        self._pass_over(passed_over)
        if wanted or found:
            self._is_running = True
            self._jobs.run(partial(self._open_in_thread, image, found, wanted), self._opened)
        else:
            self._all_open.set()

    def _at_once(self) -> int:
        return _ASKED_AT_ONCE if self._queue.has_urgent else _BEHIND_AT_ONCE

    def _open_in_thread(
        self,
        image: ClusterImage,
        found: list[TopicPartition],
        wanted: list[tuple[TopicImage, PartitionState]],
    ) -> list[Opened]:
        """`found`: those that were here when the broker started. The image may no longer assign them to it.

        A disk that refuses to move some of them away does not hold up the others.
        """
        try:
            self._unused_logs.sort_out(image, [key for key in found if self._data.has_log(*key)])
        except (OSError, StorageError):
            log.exception("logs that are not used any more stay on the disk until the next start")
            for key in found if not self._data.clean else ():
                self._data.distrust(*key)
        opened: list[Opened] = [(*item, self._opener.open(image, *item)) for item in wanted]
        self._queue.unchecked.difference_update(found)
        return opened

    def _opened(self, opened: Future[list[Opened]]) -> None:
        self._is_running = False
        self._take_over(opened.result())
