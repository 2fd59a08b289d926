"""The segments of a log in order: found by offset, taken from the front or the back.

Segments taken from the front are renamed to `.deleted` at once and removed from the disk later, so that a
consumer can finish reading one, and the slow removal can run elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forebay.storage.log.segment.batch_file import Readers
from forebay.storage.log.segment.batch_walk import NO_NEXT
from forebay.storage.log.segment.segment import Segment
from forebay.wire.parts import FileRange


class SegmentInfo(NamedTuple):
    """The properties of a segment that retention needs."""

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int


class LogSlice(NamedTuple):
    """The result of a read: whole batches in one file, and the next offset."""

    range: FileRange | None
    next_offset: int
    segment: Segment | None = None
    more: bool = False
    """True if more readable batches follow: the requested size, or the end of a segment, left them out."""


class Deleted(NamedTuple):
    """A segment that is not in the log any more, and whose files are."""

    remove_at_ms: int
    segment: Segment
    readers: Readers

    def is_due(self, now_ms: int, *, unread: bool) -> bool:
        return self.remove_at_ms <= now_ms or (unread and not self.readers)


class SegmentList:
    def __init__(self, segments: list[Segment]) -> None:
        self._items: list[Segment] = []
        self._bases: list[int] = []
        self._deleted: list[Deleted] = []
        for segment in segments:
            self.push(segment)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, number: int) -> Segment:
        return self._items[number]

    @property
    def has_deleted(self) -> bool:
        return bool(self._deleted)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._items)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that may hold `offset`, and all after it."""
        return self._items[max(bisect_right(self._bases, offset) - 1, 0) :]

    def push(self, segment: Segment) -> None:
        if self._items:
            self._items[-1].next_base = segment.base_offset
        self._items.append(segment)
        self._bases.append(segment.base_offset)

    def pop(self) -> Segment:
        segment = self._items.pop()
        self._bases.pop()
        if self._items:
            self._items[-1].next_base = NO_NEXT
        return segment

    def holds(self, segments: Sequence[Segment]) -> bool:
        """True if exactly these segments are in the list, side by side."""
        first = self._place(segments[0])
        return self._items[first : first + len(segments)] == list(segments)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replace several segments of the list by one; the caller takes care of the old ones."""
        first = self._place(old[0])
        new.next_base = old[-1].next_base
        self._items[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]

    def retire(self, segments: Sequence[Segment], remove_at_ms: int) -> None:
        """Schedule the removal of segments that are marked as deleted and no longer in the list."""
        self._deleted.extend(Deleted(remove_at_ms, each, each.readers()) for each in segments)

    def _place(self, segment: Segment) -> int:
        return max(bisect_right(self._bases, segment.base_offset) - 1, 0)

    def delete_front(self, count: int, remove_at_ms: int) -> None:
        for segment in self._items[:count]:
            segment.mark_deleted()
            del self._items[0], self._bases[0]  # now: the next one may fail
            self._deleted.append(Deleted(remove_at_ms, segment, segment.readers()))

    def bound_deleted(self, bytes_max: int) -> None:
        """Let the oldest deleted segments go at once, if all take more than this; the last one waits."""
        kept = 0
        for at in range(len(self._deleted) - 1, -1, -1):
            kept += self._deleted[at].segment.size
            if kept > bytes_max and at < len(self._deleted) - 1:
                self._deleted[: at + 1] = [each._replace(remove_at_ms=0) for each in self._deleted[: at + 1]]
                return

    def is_reap_due(self, now_ms: int, *, unread: bool) -> bool:
        """`unread`: also for segments that nobody reads, whatever their time."""
        return any(each.is_due(now_ms, unread=unread) for each in self._deleted)

    def reap(self, now_ms: int, *, unread: bool) -> list[str]:
        """Close deleted segments whose time has come; returns the names of files that may now be removed."""
        paths: list[str] = []
        waiting: list[Deleted] = []
        for each in self._deleted:
            if not each.is_due(now_ms, unread=unread):
                waiting.append(each)
                continue
            each.segment.close()
            paths += [file.path for file in each.segment.files()]
        self._deleted = waiting
        return paths

    def close(self) -> None:
        for segment in self._items:
            segment.close()
        for each in self._deleted:
            each.segment.close()
        self._deleted = []  # their files are removed with the directory, or by the next open
