"""What a file of batches consists of: whole batches, parts that are damaged, and hops over either."""

from __future__ import annotations

from typing import NamedTuple

from forebay.errors import ErrorCode, StorageError
from forebay.wire.batch import BatchHeader


class CorruptBatch(StorageError):
    """The file holds something else than the batch that should be there."""

    def __init__(self, path: str, position: int, why: str) -> None:
        super().__init__(f"{path} is damaged at byte {position}: {why}")
        self.code = ErrorCode.CORRUPT_MESSAGE
        self.position = position


class Hop(NamedTuple):
    """What must be known of a batch to pass over it."""

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
    """A batch that is as its maker checksummed it."""

    position: int
    data: memoryview
    header: BatchHeader


class DamagedPart(NamedTuple):
    """A part of a file in which no batch can be believed."""

    position: int
    end: int
    first_offset: int
    """Everything below it was read, or lies before the part of the file that is read."""
    next_offset: int | None
    """Where the next whole batch begins, or else the next file; None if nothing is known to follow."""
    error: CorruptBatch | OSError
    """OSError if the disk did not give the bytes, which it may do later."""
    claimed: BatchHeader | None = None
    """The header at its beginning as it stands there. Nothing vouches for it."""

    @property
    def why(self) -> str:
        return str(self.error)

    @property
    def unreadable(self) -> OSError | None:
        return self.error if isinstance(self.error, OSError) else None
