"""Chunks of segments from the object store, as files on the local disk, within a bound.

A chunk is read once, checked, and written to a file of its own, from which fetches are answered with
`sendfile` like from the log. The least recently used ones make room. A file goes when nobody holds it any
more: a response that is being sent holds its file, so the bound may be exceeded for a moment.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from threading import Lock

from forebay.broker.tiers.missed_chunk import ChunkName
from forebay.storage.disk import Disk, File
from forebay.wire.tiers.segment_object import batch_headers

log = logging.getLogger(__name__)

DIRECTORY = "remote-cache"


class ChunkFile:
    """A chunk on the local disk. Also the file of its ranges (`RangeFile`)."""

    def __init__(self, file: File, data: bytes, gone: deque[File]) -> None:
        self.file = file
        self._gone = gone
        self.size = len(data)
        headers = batch_headers(data)
        self._starts = array("q", [position for position, _ in headers])
        self._last_offsets = array("q", [header.last_offset for _, header in headers])

    def __del__(self) -> None:
        self._gone.append(self.file)

    def fileno(self) -> int:
        return self.file.fileno()

    def pread(self, length: int, position: int) -> bytes:
        return self.file.pread(length, position)

    def cached(self, position: int, length: int) -> bool:
        return self.file.cached(position, length)

    def has_batch(self, offset: int, end_offset: int) -> bool:
        """True if a whole batch, or its end, lies between these offsets."""
        first = bisect_left(self._last_offsets, offset)
        return first < len(self._last_offsets) and self._last_offsets[first] < end_offset

    def find(
        self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool
    ) -> tuple[int, int, int] | None:
        """(position, length, next offset) of the whole batches from the one that holds an offset on, below
        `end_offset`, of at most `max_bytes`; None if there is none."""
        first = bisect_left(self._last_offsets, offset)
        stop = bisect_left(self._last_offsets, end_offset, first)
        if first >= stop:
            return None
        position = self._starts[first]
        last = min(bisect_right(self._starts, position + max_bytes, first), stop)
        if self._end(last - 1) - position > max_bytes:
            last -= 1
        if last <= first:
            if not min_one:
                return None
            last = first + 1
        return position, self._end(last - 1) - position, self._last_offsets[last - 1] + 1

    def _end(self, number: int) -> int:
        return self._starts[number + 1] if number + 1 < len(self._starts) else self.size


class ChunkFiles:
    """The cache. The event loop owns it; threads call `write` and `remove_gone` only."""

    def __init__(self, disk: Disk, data_directory: str, process: str) -> None:
        """`process`: in the names of files. A thread that an earlier broker has left behind uses another."""
        self._disk = disk
        self._process = process
        self._directory = f"{data_directory}/{DIRECTORY}"
        self._files: OrderedDict[ChunkName, ChunkFile] = OrderedDict()
        self._gone: deque[File] = deque()
        self._number = 0
        self._is_made = False
        self._lock = Lock()
        self.bytes = 0

    def get(self, name: ChunkName) -> ChunkFile | None:
        found = self._files.get(name)
        if found is not None:
            self._files.move_to_end(name)
        return found

    def new_path(self) -> str:
        self._number += 1
        return f"{self._directory}/{self._process}-{self._number}.chunk"

    def make_directory(self) -> None:
        """Blocks. What an earlier process has left there is removed."""
        with self._lock:
            if not self._is_made:
                if self._disk.exists(self._directory):
                    self._disk.remove_tree(self._directory)
                self._disk.mkdirs(self._directory)
                self._is_made = True

    def write(self, path: str, data: bytes) -> ChunkFile:
        """Blocks; any thread. Raises OSError."""
        self.make_directory()
        file = self._disk.open(path, create=True)
        try:
            file.appendv([data])
        except BaseException:
            self._gone.append(file)
            raise
        return ChunkFile(file, data, self._gone)

    def remove_gone(self) -> None:
        """Remove the files that nobody holds any more. Blocks; any thread."""
        while self._gone:
            try:
                file = self._gone.popleft()
            except IndexError:
                return
            file.close()
            try:
                self._disk.remove(file.path)
            except OSError as error:
                log.warning("a cached chunk stays on the disk", extra={"reason": str(error)})

    def add(self, name: ChunkName, chunk: ChunkFile, bytes_max: int) -> None:
        self._files[name] = chunk
        self.bytes += chunk.size
        while self.bytes > bytes_max and len(self._files) > 1:
            _, oldest = self._files.popitem(last=False)
            self.bytes -= oldest.size
