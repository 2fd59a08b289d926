"""The segments of a log in order: found by offset, taken from the front or the back.

Segments taken from the front are renamed to `.deleted` at once and removed from the disk later, so that a
consumer can finish reading one, and the slow removal can run elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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


class SegmentList:
    def __init__(self, segments: list[Segment]) -> None:
        self._items: list[Segment] = []
        self._bases: list[int] = []
        self._deleted: list[tuple[int, Segment]] = []
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
        self._deleted.extend((remove_at_ms, segment) for segment in segments)

    def _place(self, segment: Segment) -> int:
        return max(bisect_right(self._bases, segment.base_offset) - 1, 0)

    def delete_front(self, count: int, remove_at_ms: int) -> None:
        for segment in self._items[:count]:
            segment.mark_deleted()
            self._deleted.append((remove_at_ms, segment))
        del self._items[:count]
        del self._bases[:count]

    def bound_deleted(self, bytes_max: int) -> None:
        """Let the oldest deleted segments go at once, if all take more than this; the last one waits."""
        kept = 0
        for at in range(len(self._deleted) - 1, -1, -1):
            kept += self._deleted[at][1].size
            if kept > bytes_max and at < len(self._deleted) - 1:
                self._deleted[: at + 1] = [(0, segment) for _, segment in self._deleted[: at + 1]]
                return

    def is_reap_due(self, now_ms: int) -> bool:
        return bool(self._deleted) and self._deleted[0][0] <= now_ms

    def reap(self, now_ms: int) -> list[str]:
        """Close deleted segments whose time has come; returns the names of files that may now be removed."""
        paths: list[str] = []
        # Their times grow with their places, unless the setting was changed in between.
        due = next((at for at, (remove_at_ms, _) in enumerate(self._deleted) if remove_at_ms > now_ms), None)
        reaped, self._deleted = self._deleted[:due], [] if due is None else self._deleted[due:]
        for _, segment in reaped:
            segment.close()
            paths += [file.path for file in segment.files()]
        return paths

    def close(self) -> None:
        for segment in self._items:
            segment.close()
        for _, segment in self._deleted:
            segment.close()
        self._deleted = []  # their files are removed with the directory, or by the next open
