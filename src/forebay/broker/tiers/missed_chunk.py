"""The result of reading messages in the object store: a range of a chunk, or that the chunk is not here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from forebay.errors import ProtocolError, StorageError
from forebay.wire.batch import HEADER_SIZE, BatchHeader, read_header
from forebay.wire.parts import FileRange, RangeFile
from forebay.wire.tiers.segment_object import AbortedSpan

ChunkName = tuple[str, int]
"""The key of a segment object, and the number of a chunk in it."""


class ChunkRange(FileRange):
    """Batches in a chunk, and the aborted transactions that they are of."""

    __slots__ = ("aborted",)

    def __init__(self, file: RangeFile, position: int, length: int, aborted: Sequence[AbortedSpan]) -> None:
        super().__init__(file, position, length)
        self.aborted = aborted

    def headers(self) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch. Raises StorageError."""
        at, end = self.position, self.position + self.length
        while at < end:
            try:
                header = read_header(self.file.pread(HEADER_SIZE, at))
            except (OSError, ProtocolError) as error:
                raise StorageError(f"a cached chunk cannot be read: {error}") from error
            if header.size < HEADER_SIZE:
                raise StorageError("a cached chunk is damaged")
            yield at, header
            at += header.size


class Missed(NamedTuple):
    """The chunk is not on the local disk."""

    name: ChunkName
