"""A cache on disk of what views show of closed segments: filtered once, then sent like any segment.

A closed segment does not change, nor does a view, so the batches that a view shows of it are the same for
every reader. They are written down while the segment is filtered for a reader that goes through it from its
beginning, at no further cost than the writing. When its end is reached, others get them from the file.

A cached segment counts for one segment of a log in one state: compaction puts another segment in its place,
and cutting the log changes the log's generation. The cache is empty at each start (`DataDir`), and has a
bound; what was not used for longest goes first. Files are removed a while after that: they may be on
their way to a client.
"""

from __future__ import annotations

import logging
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Container
from typing import NamedTuple

from forebay.clock import Clock
from forebay.core.cluster.images.view_image import ViewImage
from forebay.core.views.filtering import Filtered
from forebay.storage.disk import Disk, File
from forebay.storage.log.segment.batch_walk import NO_NEXT
from forebay.storage.log.segment.segment import Segment
from forebay.storage.log.segment.segment_list import LogSlice
from forebay.wire.batch import BatchHeader, split
from forebay.wire.parts import FileRange

log = logging.getLogger(__name__)

_INDEX_BYTES = 4096
_OFFSET_DELTA_MAX = 2**31 - 1
SEGMENTS_MAX = 1_000
"""Each has an open file, also one of which a view shows nothing."""
_REMOVE_AFTER_S = 60.0

Key = tuple[bytes, str]
"""The id of a view, and the path of a segment."""


class Cached(NamedTuple):
    """A part of a cached segment that a reader gets."""

    range: FileRange
    next_offset: int
    delivered: int
    """How many records are in it."""
    gap: BatchHeader | None
    """The empty batch that it is, if the view shows nothing of the segment."""


class CachedSegment:
    """The file with what a view shows of one segment, as far as it was written."""

    __slots__ = (
        "complete",
        "counts",
        "file",
        "gap",
        "generation",
        "is_written",
        "next_position",
        "offsets",
        "positions",
        "segment",
    )

    def __init__(self, file: File, segment: Segment, generation: int) -> None:
        self.file = file
        self.segment = segment
        self.generation = generation
        self.complete = False
        self.is_written = False
        """True while a thread appends to the file."""
        self.gap: BatchHeader | None = None
        """One empty batch in place of all in the file, if it holds nothing else."""
        self.next_position = 0
        """Of the segment: everything before it is in the file."""
        self.offsets = array("q", [segment.base_offset])
        self.positions = array("q", [0])
        self.counts = array("q", [0])
        """Places in the file where batches begin, a few kilobytes apart, and the end. `offsets` says where a
        reader goes on that has got everything before such a place, `counts` how many records those are."""

    def note(self, filtered: Filtered, source_bytes: int) -> None:
        """Note that what is shown of the next part of the segment has been appended to the file."""
        end = self.positions.pop() if len(self.positions) > 1 else 0
        offset = self.offsets.pop() if len(self.offsets) > 1 else self.offsets[0]
        count = self.counts.pop() if len(self.counts) > 1 else 0
        for at, header in split(filtered.data):
            if end + at - self.positions[-1] >= _INDEX_BYTES:
                self._note_place(offset, end + at, count)
            offset = header.next_offset
            count += 0 if header.is_control else header.record_count
            self.gap = self._widened_gap(header, is_first=not end + at)
        self._note_place(filtered.next_offset, end + len(filtered.data), count)
        self.next_position += source_bytes
        self.complete = self.next_position == self.segment.size

    def _widened_gap(self, header: BatchHeader, *, is_first: bool) -> BatchHeader | None:
        if header.record_count or is_first:
            return None if header.record_count else header
        if self.gap is None or header.last_offset - self.gap.base_offset > _OFFSET_DELTA_MAX:
            return None
        base_offset = self.gap.base_offset
        return header._replace(base_offset=base_offset, last_offset_delta=header.last_offset - base_offset)

    def _note_place(self, offset: int, position: int, count: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.counts.append(count)

    @property
    def size(self) -> int:
        return self.positions[-1]

    def part(self, offset: int, max_bytes: int) -> Cached | None:
        """From the batch that holds an offset on, at most that many bytes, but at least one piece."""
        if self.gap is not None:
            return Cached(FileRange(self.file, 0, self.size), self.offsets[-1], 0, self.gap)
        first = max(bisect_right(self.offsets, offset) - 1, 0)
        start = self.positions[first]
        last = max(bisect_right(self.positions, start + max_bytes) - 1, first + 1)
        if last >= len(self.positions):
            return None
        found = FileRange(self.file, start, self.positions[last] - start)
        delivered = self.counts[last] - self.counts[first]
        return Cached(found, self.offsets[last], delivered, self.gap)


class ViewCache:
    def __init__(self, disk: Disk, directory: str, clock: Clock, bytes_max: Callable[[], int]) -> None:
        self._disk = disk
        self._directory = directory
        self._now = clock.monotonic
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        """Guards all that follows: the loop looks things up, threads add."""
        self._entries: OrderedDict[Key, CachedSegment] = OrderedDict()
        self._bytes = 0
        self._leaving: deque[tuple[float, File]] = deque()
        self._made = 0

    def __len__(self) -> int:
        """How many segments can be read from here."""
        return sum(entry.complete for entry in self._entries.values())

    @property
    def size(self) -> int:
        return self._bytes

    # -- on the loop -----------------------------------------------------------------------------------

    def find(
        self, view: ViewImage, found: LogSlice, generation: int, offset: int, max_bytes: int, end: int
    ) -> Cached | None:
        """The cached part of a view, of the segment that holds an offset, from there on. Reading ends at
        `end`."""
        segment = found.segment
        if segment is None or not self._entries or segment.next_base > end:
            return None
        key = (view.view_id, segment.file.path)
        with self._lock:
            entry = self._entries.get(key)
            if entry is None or not entry.complete:
                return None
            if not _is_of(entry, segment, generation):
                self._drop(key)
                return None
            self._entries.move_to_end(key)
            return entry.part(offset, max_bytes)

    def keep(self, view_ids: Container[bytes]) -> None:
        """Drop everything of other views."""
        with self._lock:
            for key in [each for each in self._entries if each[0] not in view_ids]:
                self._drop(key)

    # -- in a thread -----------------------------------------------------------------------------------

    def add(self, view: ViewImage, found: LogSlice, generation: int, filtered: Filtered) -> None:
        """A slice was filtered, of a view that shows the same tomorrow as today: write it down if it is the
        next one of a closed segment, as far as it consists of whole batches."""
        segment, part = found.segment, found.range
        if segment is None or part is None or filtered.cut is not None or filtered.begins_within:
            return
        if segment.next_base == NO_NEXT or self._bytes_max() <= 0:
            return
        key = (view.view_id, segment.file.path)
        entry = None
        try:
            entry = self._claim(key, segment, generation, part.position)
            if entry is not None:
                entry.file.appendv([filtered.data])
                self._note(key, entry, filtered, filtered.source_bytes)
            self._sweep()
        except OSError as error:
            log.warning("a view cannot be cached", extra={"view": view.name, "reason": str(error)})
            with self._lock:
                if entry is not None and self._entries.get(key) is entry:
                    self._drop(key)

    def _claim(self, key: Key, segment: Segment, generation: int, position: int) -> CachedSegment | None:
        """The cached segment that is to be gone on with at this position, for this thread alone."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None and not _is_of(entry, segment, generation):
                self._drop(key)
                entry = None
        if entry is None and position == 0:
            made = CachedSegment(self._open(), segment, generation)
            with self._lock:
                entry = self._entries.setdefault(key, made)
                if entry is not made:  # another thread was faster
                    self._leaving.append((self._now(), made.file))
                while len(self._entries) > SEGMENTS_MAX:
                    self._drop(next(iter(self._entries)))
        with self._lock:
            if entry is None or entry.complete or entry.is_written or entry.next_position != position:
                return None
            entry.is_written = True
            return entry

    def _note(self, key: Key, entry: CachedSegment, filtered: Filtered, source_bytes: int) -> None:
        with self._lock:
            entry.is_written = False
            if self._entries.get(key) is not entry:
                return  # it was dropped meanwhile
            before = entry.size
            entry.note(filtered, source_bytes)
            self._bytes += entry.size - before
            self._entries.move_to_end(key)
            while self._bytes > self._bytes_max() and self._entries:
                self._drop(next(iter(self._entries)))

    def _open(self) -> File:
        with self._lock:
            self._made += 1
            number = self._made
        self._disk.mkdirs(self._directory)
        return self._disk.open(f"{self._directory}/{number}.batches", create=True)

    def _sweep(self) -> None:
        """Remove the files of what was dropped a while ago."""
        while True:
            with self._lock:
                if not self._leaving or self._leaving[0][0] + _REMOVE_AFTER_S > self._now():
                    return
                _, file = self._leaving.popleft()
            file.close()
            self._disk.remove(file.path)

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key)
        self._bytes -= entry.size
        self._leaving.append((self._now(), entry.file))


def _is_of(entry: CachedSegment, segment: Segment, generation: int) -> bool:
    is_same = entry.segment is segment and entry.generation == generation
    return is_same and entry.next_position <= segment.size
