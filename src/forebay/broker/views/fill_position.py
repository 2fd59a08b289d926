"""How far one partition of a materialized view is filled, and writing what comes next to its log."""

from __future__ import annotations

from enum import Enum
from functools import partial

from forebay.broker.partition.partition import Partition
from forebay.broker.worker_threads import LazyThreads
from forebay.core.cluster.images.view_image import ViewImage
from forebay.core.partition.batch_rules import place
from forebay.core.views.copying import UNKNOWN_EPOCH, Copied, gap_batch, source_epoch
from forebay.storage.log.segment.batch_file import Stretch
from forebay.wire.batch import read_header

_GAP_S = 5.0
_GAP_OFFSETS = 100_000
"""Offsets at which nothing is shown are written down after that time, or when they are that many. Until then
only this broker knows of them, and the next leader would examine them again."""


class FillStop(Enum):
    """Why a partition is not filled. The values are those of a metric's label."""

    SOURCE_LOST = "source_lost_messages"
    SOURCE_NOT_SERVED = "source_not_served"
    NOT_WRITTEN = "view_not_written"
    BAD_ANSWER = "bad_answer"


class Fill:
    """One partition while this broker leads it."""

    def __init__(self, partition: Partition, view: ViewImage) -> None:
        self.partition = partition
        self.view = view
        self.leader_epoch = partition.leader_epoch
        self.rests_until_s = 0.0
        self.stop: FillStop | None = None
        self.problem = ""
        """Why it is not filled; empty while it is."""
        self.epoch = UNKNOWN_EPOCH
        """The leader epoch of the source in which the last batch before the position was written."""
        self._is_begun = False
        self._end = -1
        self._next = 0
        self._gap_since_s = 0.0
        self._timestamp = 0

    @property
    def position(self) -> int:
        """Where to go on in the source.

        That is where the log ends. It ends earlier than it did if it could not be written.
        """
        end = self.partition.log.end_offset
        return self._next if self._end == end else end

    @property
    def is_over(self) -> bool:
        partition = self.partition
        return partition.closed or not partition.is_leader or partition.leader_epoch != self.leader_epoch

    @property
    def may_write(self) -> bool:
        partition = self.partition
        return not self.is_over and partition.enough_replicas and not partition.log.refuses

    async def begin(self, threads: LazyThreads) -> None:
        """Find out what the log says of the source. Raises StorageError."""
        log = self.partition.log
        end = log.end_offset
        if self._is_begun:
            return
        if end > log.start_offset:
            last = next(iter(log.stretches(end - 1)), None)
            if last is not None:
                self.epoch = await threads.run(partial(_last_epoch, last))
        self._is_begun = log.end_offset == end

    def passed(self, next_offset: int, now_s: float) -> None:
        """There is nothing to be stored before this offset."""
        end = self.partition.log.end_offset
        if self.position <= end:
            self._gap_since_s = now_s
        self._end, self._next = end, max(next_offset, end)

    def append(self, copied: Copied, now_s: float) -> int:
        """Queue what follows the position; how many bytes it is. Raises StorageError."""
        size = 0
        self.epoch = max(self.epoch, copied.epoch)
        self._timestamp = copied.max_timestamp
        for batch in copied.batches:
            size += self._append(batch)
        self.passed(copied.next_offset, now_s)
        return size

    def is_gap_due(self, now_s: float) -> bool:
        """True if offsets at which nothing is shown are to be written down."""
        length = self.position - self.partition.log.end_offset
        return length > 0 and (now_s - self._gap_since_s >= _GAP_S or length >= _GAP_OFFSETS)

    def append_gap(self) -> int:
        """Queue what stands for offsets before the position; how many bytes it is. Raises StorageError."""
        end, epoch = self.partition.log.end_offset, self.epoch
        return self._append(gap_batch(end, self.position, epoch=epoch, timestamp=self._timestamp))

    def _append(self, batch: bytearray) -> int:
        partition, view = self.partition, memoryview(batch)
        header = read_header(batch)
        partition.log.append(view, place(view, header, header.base_offset, partition.leader_epoch))
        return len(batch)


def _last_epoch(stretch: Stretch) -> int:
    """In a thread: the leader epoch of the source that the last batch of a log tells."""
    epoch = UNKNOWN_EPOCH
    for _, header in stretch.batches():
        epoch = source_epoch(header)
    return epoch
