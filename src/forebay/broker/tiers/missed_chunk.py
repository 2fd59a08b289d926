"""What a read of messages in the object store comes to: a range of a chunk, or that the chunk is not here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.wire.parts import FileRange, RangeFile

ChunkName = tuple[str, int]
"""The key of a segment object, and the number of a chunk in it."""


class ChunkRange(FileRange):
    """Batches in a chunk, and the aborted transactions that they are of."""

    __slots__ = ("aborted",)

    def __init__(
        self, file: RangeFile, position: int, length: int, aborted: Sequence[tuple[int, int]]
    ) -> None:
        super().__init__(file, position, length)
        self.aborted = aborted
        """Producer id and first offset of each."""


class Missed(NamedTuple):
    """The chunk is not on the local disk."""

    name: ChunkName
