"""The parts of a file of batches: whole batches, damaged parts, and hops over either."""

from __future__ import annotations

from typing import NamedTuple

from forebay.errors import ErrorCode, StorageError
from forebay.wire.batch import BatchHeader


class CorruptBatch(StorageError):
    """The file holds something other than the expected batch."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {why}")
        self.code = ErrorCode.CORRUPT_MESSAGE
        self.position = position


class Hop(NamedTuple):
    """The properties of a batch that are needed to skip it."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int

    @classmethod
    def over(cls, head: BatchHeader, position: int) -> Hop:
        offsets, times = (head.base_offset, head.last_offset), (head.base_timestamp, head.max_timestamp)
        return cls(position, head.size, *offsets, *times)


class WholeBatch(NamedTuple):
    """A batch whose checksum is correct."""

    position: int
    data: memoryview
    header: BatchHeader


class DamagedPart(NamedTuple):
    """A part of a file in which no batch can be trusted."""

    position: int
    end: int
    first_offset: int
    """Everything below it was read, or lies before the part of the file that is read."""
    next_offset: int | None
    """The start of the next whole batch, or else of the next file; None if nothing is known to follow."""
    error: CorruptBatch | OSError
    """OSError if the disk could not read the bytes, which it may do later."""
    claimed: BatchHeader | None = None
    """The header at its beginning as it is. Nothing vouches for it."""

    @property
    def why(self) -> str:
        return str(self.error)

    @property
    def unreadable(self) -> OSError | None:
        return self.error if isinstance(self.error, OSError) else None
