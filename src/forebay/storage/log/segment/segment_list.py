"""The segments of a log in order: found by offset, taken from the front or the back.

Segments taken from the front are renamed to `.deleted` at once and removed from the disk later, so that
a consumer in the middle of reading one is not cut off, and so that the slow part of removing can run
elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forebay.storage.log.segment.batch_file import NO_NEXT
from forebay.storage.log.segment.segment import Segment
from forebay.wire.parts import FileRange


class SegmentInfo(NamedTuple):
    """What retention decides by."""

    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int


class LogSlice(NamedTuple):
    """What a read found: whole batches in one file, and the offset to go on from."""

    range: FileRange | None
    next_offset: int
    segment: Segment | None = None
    more: bool = False
    """Whether batches that may be read follow: the size wanted, or the end of a segment, left them out."""


class SegmentList:
    def __init__(self, segments: list[Segment]) -> None:
        self._items: list[Segment] = []
        self._bases: list[int] = []
        self._deleted: deque[tuple[int, Segment]] = deque()
        for segment in segments:
            self.push(segment)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, number: int) -> Segment:
        return self._items[number]

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
        """Whether these very segments are in the list, side by side."""
        first = self._place(segments[0])
        return self._items[first : first + len(segments)] == list(segments)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Let one segment stand for several that the list holds; the caller sees to those."""
        first = self._place(old[0])
        new.next_base = old[-1].next_base
        self._items[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]

    def retire(self, segments: Sequence[Segment], remove_at_ms: int) -> None:
        """Have segments that are marked as deleted, and no longer in the list, removed at that time."""
        self._deleted.extend((remove_at_ms, segment) for segment in segments)

    def _place(self, segment: Segment) -> int:
        return max(bisect_right(self._bases, segment.base_offset) - 1, 0)

    def delete_front(self, count: int, remove_at_ms: int) -> None:
        for segment in self._items[:count]:
            segment.mark_deleted()
            self._deleted.append((remove_at_ms, segment))
        del self._items[:count]
        del self._bases[:count]

    def reap(self, now_ms: int) -> list[str]:
        """Close deleted segments whose time has come; the names of the files that may now be removed."""
        paths: list[str] = []
        while self._deleted and self._deleted[0][0] <= now_ms:
            _, segment = self._deleted.popleft()
            segment.close()
            paths += [file.path for file in segment.files()]
        return paths

    def close(self) -> None:
        for segment in self._items:
            segment.close()
        for _, segment in self._deleted:
            segment.close()
